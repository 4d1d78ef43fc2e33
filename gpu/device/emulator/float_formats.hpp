// Floating-point formats in integers: exact decoding, one rounding when encoding, and the exact
// model of ex2.approx.ftz.f32. All bits are those of sm_90: NaN results are canonical.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "gpu/device/emulator/decode/program.hpp"

namespace kvproof::gpu::emulator {
namespace {  // every translation unit is built for its own instruction set

struct float_format {
  int fraction_bits;
  int exponent_bits;
};
constexpr float_format format_f16{10, 5};
constexpr float_format format_bf16{7, 8};
constexpr float_format format_f32{23, 8};
constexpr float_format format_f64{52, 11};

constexpr std::uint64_t canonical_nan(float_format f) {
  return (std::uint64_t{1} << (f.fraction_bits + f.exponent_bits)) - 1;
}
constexpr std::uint64_t infinity(float_format f) {
  return ((std::uint64_t{1} << f.exponent_bits) - 1) << f.fraction_bits;
}

// Nonzero finite (-1)^negative * mantissa * 2^exponent, rounded once.
inline std::uint64_t encode(bool negative, std::uint64_t mantissa, int exponent, float_format f,
                            rounding mode) {
  const std::uint64_t sign = std::uint64_t{negative} << (f.fraction_bits + f.exponent_bits);
  if (mantissa == 0) return sign;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int lead = 63 - std::countl_zero(mantissa);
  const int e = std::max(lead + exponent, 1 - bias);  // exponent of the result's leading bit
  const int drop = e - f.fraction_bits - exponent;    // bits below the last kept one
  std::uint64_t kept = 0;
  bool half = false;
  bool rest = false;
  if (drop <= 0) {
    kept = mantissa << -drop;
  } else if (drop > 64) {
    rest = true;
  } else {
    kept = drop == 64 ? 0 : mantissa >> drop;
    half = (mantissa >> (drop - 1) & 1) != 0;
    rest = (mantissa & ((std::uint64_t{1} << (drop - 1)) - 1)) != 0;
  }
  const bool up = mode == rounding::rz   ? false
                  : mode == rounding::rm ? negative && (half || rest)
                  : mode == rounding::rp ? !negative && (half || rest)
                                         : half && (rest || (kept & 1) != 0);
  kept += up ? 1 : 0;
  // The hidden bit adds one to the exponent field, a carry another.
  const std::uint64_t bits = (static_cast<std::uint64_t>(e + bias - 1) << f.fraction_bits) + kept;
  if (bits < infinity(f)) return sign | bits;
  const bool to_infinity = mode == rounding::rn || (mode == rounding::rp && !negative) ||
                           (mode == rounding::rm && negative) || mode == rounding::none;
  return sign | (to_infinity ? infinity(f) : infinity(f) - 1);
}

inline std::uint64_t encode(double x, float_format f, rounding mode) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const bool negative = (bits >> 63) != 0;
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t sign = std::uint64_t{negative} << (f.fraction_bits + f.exponent_bits);
  if (field == 0x7ff) return fraction != 0 ? canonical_nan(f) : sign | infinity(f);
  if (field == 0) return encode(negative, fraction, -1074, f, mode);
  return encode(negative, fraction | std::uint64_t{1} << 52, field - 1075, f, mode);
}

inline float f16_to_f32(std::uint16_t h) {
#ifdef __F16C__
  return _cvtsh_ss(h);
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
#endif
}
inline std::uint16_t f32_to_f16(float x) {
  if (x != x) return 0x7fff;
#ifdef __F16C__
  return static_cast<std::uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#else
  return static_cast<std::uint16_t>(encode(double{x}, format_f16, rounding::rn));
#endif
}
inline float bf16_to_f32(std::uint16_t h) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
}
inline std::uint16_t f64_to_bf16(double x) {
  return static_cast<std::uint16_t>(encode(x, format_bf16, rounding::rn));
}

// a * b + c in double, rounded to odd: a further rounding to 11 or 8 bits is then the only one.
inline double fma_to_odd(double a, double b, double c) {
  const double p = a * b;  // exact for 11-bit factors
  const double s = p + c;
  const double t = s - p;
  const double error = (p - (s - t)) + (c - t);
  auto bits = std::bit_cast<std::uint64_t>(s);
  if (std::isfinite(s) && error != 0 && (bits & 1) == 0) bits += (error > 0) == (s > 0) ? 1 : -1;
  return std::bit_cast<double>(bits);
}

struct ex2_coefficients {
  std::int32_t c0, c1, c2;
};
// Quadratic interpolation of 2^f on 64 segments, as the multi-function unit holds it.
constexpr ex2_coefficients ex2_table[64] = {
    {33554432, 22713, 494}, {33919815, 22960, 501}, {34289179, 23210, 506}, {34662562, 23463, 511},
    {35040015, 23718, 518}, {35421574, 23977, 521}, {35807289, 24238, 527}, {36197206, 24502, 532},
    {36591369, 24768, 541}, {36989822, 25038, 546}, {37392613, 25311, 551}, {37799794, 25586, 559},
    {38211406, 25865, 564}, {38627501, 26147, 568}, {39048128, 26431, 577}, {39473334, 26719, 583},
    {39903170, 27010, 589}, {40337687, 27304, 596}, {40776934, 27602, 600}, {41220967, 27902, 609},
    {41669833, 28206, 615}, {42123589, 28513, 622}, {42582283, 28824, 627}, {43045974, 29138, 633},
    {43514714, 29455, 641}, {43988558, 29776, 647}, {44467562, 30100, 655}, {44951783, 30428, 661},
    {45441275, 30759, 670}, {45936098, 31094, 677}, {46436311, 31432, 686}, {46941968, 31775, 691},
    {47453132, 32121, 699}, {47969864, 32471, 705}, {48492222, 32824, 715}, {49020266, 33182, 721},
    {49554062, 33543, 730}, {50093671, 33908, 739}, {50639156, 34277, 748}, {51190579, 34651, 753},
    {51748008, 35028, 763}, {52311507, 35409, 773}, {52881143, 35795, 779}, {53456980, 36185, 787},
    {54039088, 36579, 796}, {54627535, 36977, 806}, {55222390, 37380, 813}, {55823722, 37787, 822},
    {56431604, 38198, 833}, {57046103, 38614, 842}, {57667294, 39035, 849}, {58295251, 39460, 858},
    {58930045, 39889, 870}, {59571751, 40324, 877}, {60220444, 40763, 887}, {60876202, 41207, 896},
    {61539101, 41655, 909}, {62209217, 42109, 917}, {62886631, 42568, 925}, {63571421, 43031, 938},
    {64263669, 43500, 946}, {64963455, 43973, 959}, {65670860, 44452, 969}, {66385969, 44936, 980}};

inline std::uint32_t ex2_approx_ftz(std::uint32_t x) {
  const std::uint32_t magnitude = x & 0x7fffffffu;
  const bool negative = (x >> 31) != 0;
  if (magnitude > 0x7f800000u) return 0x7fffffffu;
  if (magnitude >= 0x43000000u) return negative ? 0u : 0x7f800000u;  // |x| >= 128
  const int e = static_cast<int>(magnitude >> 23) - 127;
  std::uint32_t fixed = 0;  // |x| with 23 fraction bits, cut toward zero
  if (e >= -23) {
    const std::uint32_t m = (magnitude & 0x7fffffu) | 0x800000u;
    fixed = e >= 0 ? m << e : m >> -e;
  }
  int n = static_cast<int>(fixed >> 23);
  std::uint32_t f = fixed & 0x7fffffu;
  if (negative) {
    n = f != 0 ? -n - 1 : -n;
    f = f != 0 ? 0x7fffffu - f : 0;
  }
  const ex2_coefficients& c = ex2_table[f >> 17];
  const std::uint32_t v = f & 0x1ffffu;
  std::uint32_t square = 0;
  for (std::uint32_t i = 1; i < 17; ++i) square += (v >> i & 1u) * (v >> (18 - i));
  const std::int64_t y = ((std::int64_t{c.c0} << 13) + std::int64_t{c.c1} * v +
                          std::int64_t{c.c2} * (square >> 1) + 0x77e2) >>
                         15;
  const std::int64_t bits = (static_cast<std::int64_t>(n + 127) << 23) + (y - 0x800000);
  if (bits < 0x800000) return 0;
  return bits >= 0x7f800000 ? 0x7f800000u : static_cast<std::uint32_t>(bits);
}

}  // namespace
}  // namespace kvproof::gpu::emulator
