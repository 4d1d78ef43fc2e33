// mma.sync on f16 and bf16 with f32 accumulators, with the arithmetic of sm_90: the exact products
// of one k-step and the accumulator are aligned to the largest exponent, their magnitudes truncated
// to 25 fraction bits, summed exactly and truncated once to f32. Zeros take no part, the exponent
// is at least -133, a zero sum is +0, NaN is 0x7fffffff. Built for plain x86-64 and for AVX2.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "gpu/device/emulator/float_formats.hpp"
#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

constexpr int sum_fraction_bits = 25;
constexpr int exponent_floor = -133;
constexpr int rows_m = 16;
constexpr int columns_n = 8;
constexpr int max_k = 16;

struct tile {
  alignas(32) float a[rows_m][max_k];
  alignas(32) float b[max_k][columns_n];
  alignas(32) float c[rows_m][columns_n];
};

// Exponent of a nonzero operand; subnormals of the 16-bit format keep its least exponent.
int exponent_of(float v, int least) {
  const int field = static_cast<int>(std::bit_cast<u32>(v) >> 23 & 0xff);
  return std::max(field - 127, least);
}
// |v| as an integer with `fraction` bits below 2^exponent_of(v).
s64 significand_of(float v, int least, int fraction) {
  return static_cast<s64>(std::ldexp(std::fabs(double{v}), fraction - exponent_of(v, least)));
}

// One output element, any inputs.
u32 dot_exact(const float* a, const float* b, int stride, float c, int k_count, int least) {
  bool nan = c != c;
  bool plus = std::isinf(c) && c > 0;
  bool minus = std::isinf(c) && c < 0;
  int e_max = exponent_floor;
  if (c != 0 && std::isfinite(c)) e_max = std::max(e_max, exponent_of(c, -126));
  for (int k = 0; k < k_count; ++k) {
    const float x = a[k];
    const float y = b[k * stride];
    const double p = double{x} * double{y};  // infinities and NaN; finite products are exact
    nan = nan || p != p;
    plus = plus || (std::isinf(p) && p > 0);
    minus = minus || (std::isinf(p) && p < 0);
    if (p != 0 && std::isfinite(p))
      e_max = std::max(e_max, exponent_of(x, least) + exponent_of(y, least));
  }
  if (nan || (plus && minus)) return 0x7fffffffu;
  if (plus || minus) return plus ? 0x7f800000u : 0xff800000u;
  const auto aligned = [&](s64 magnitude, int exponent, int fraction) -> s64 {
    const int shift = sum_fraction_bits - fraction - (e_max - exponent);
    if (shift >= 0) return magnitude << shift;
    return shift < -62 ? 0 : magnitude >> -shift;
  };
  s64 sum = 0;
  constexpr int fraction = 10;  // holds both f16 and bf16
  for (int k = 0; k < k_count; ++k) {
    const float x = a[k];
    const float y = b[k * stride];
    if (x == 0 || y == 0) continue;
    const s64 t = aligned(significand_of(x, least, fraction) * significand_of(y, least, fraction),
                          exponent_of(x, least) + exponent_of(y, least), 2 * fraction);
    sum += std::signbit(x) != std::signbit(y) ? -t : t;
  }
  if (c != 0) {
    const s64 t = aligned(significand_of(c, -126, 23), exponent_of(c, -126), 23);
    sum += std::signbit(c) ? -t : t;
  }
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  const u64 magnitude = static_cast<u64>(negative ? -sum : sum);
  const u32 bits = static_cast<u32>(
      encode(negative, magnitude, e_max - sum_fraction_bits, format_f32, rounding::rz));
  if ((bits & 0x7fffffffu) == 0) return 0;
  const int top = 63 - std::countl_zero(magnitude) + e_max - sum_fraction_bits;
  return top >= 128 ? (negative ? 0xff800000u : 0x7f800000u) : bits;
}

// Power of two below |v|, 0 for 0; exact for normal floats.
[[gnu::always_inline]] inline float power_below(float v, float least) {
  const float p = std::bit_cast<float>(std::bit_cast<u32>(v) & 0x7f800000u);
  return v == 0.0f ? 0.0f : (p > least ? p : least);
}

// A row of eight outputs in float arithmetic that is exact under the guard: every power of two that
// occurs lies within 2^+-60, so that no scaled product underflows above its truncation. Sums of
// eight products stay below 2^30 and are integers. Returns false when the guard fails.
bool row_fast(const tile& t, const float (&b_power)[max_k][columns_n], int r, int k_count,
              float least, float* out) {
  alignas(32) float top[columns_n];
  for (int n = 0; n < columns_n; ++n) top[n] = power_below(t.c[r][n], 0x1p-126f);
  for (int k = 0; k < k_count; ++k) {
    const float p = power_below(t.a[r][k], least);
    for (int n = 0; n < columns_n; ++n) {
      const float q = p * b_power[k][n];
      top[n] = q > top[n] ? q : top[n];
    }
  }
  alignas(32) float scale[columns_n];
  bool good = true;
  for (int n = 0; n < columns_n; ++n) {
    const bool empty = top[n] == 0.0f;
    good = good && (empty || (top[n] >= 0x1p-60f && top[n] <= 0x1p60f));
    scale[n] = 0x1p25f / (empty ? 1.0f : top[n]);
  }
  if (!good) return false;
  alignas(32) s32 low[columns_n] = {};
  alignas(32) s32 high[columns_n] = {};
  const int half = k_count / 2;
  for (int k = 0; k < half; ++k) {
    const float x = t.a[r][k];
    const float y = t.a[r][k + half];
    for (int n = 0; n < columns_n; ++n) {
      low[n] += static_cast<s32>(x * t.b[k][n] * scale[n]);
      high[n] += static_cast<s32>(y * t.b[k + half][n] * scale[n]);
    }
  }
  for (int n = 0; n < columns_n; ++n) {
    const double sum =
        double(low[n]) + double(high[n]) + double(static_cast<s32>(t.c[r][n] * scale[n]));
    // 24 significant bits, the others cut
    const double cut = std::bit_cast<double>(std::bit_cast<u64>(sum) & ~((u64{1} << 29) - 1));
    out[n] = static_cast<float>(cut) * (1.0f / scale[n]) + 0.0f;
  }
  return true;
}

template <bool Half>
float value_of(u32 pair, int which) {
  const u16 bits = static_cast<u16>(pair >> (16 * which));
  return Half ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Lane 4g + q: A rows g, g + 8 and columns 2q, 2q + 1 (+ 8); B rows 2q, 2q + 1 (+ 8) and column g;
// C and D rows g, g + 8 and columns 2q, 2q + 1. o: d at 0, a at 4, b at 8, c at 10.
template <bool Half>
void gather(warp& w, const instruction& i, tile& t) {
  const int k_count = i.vector;
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4;
    const int q = l % 4;
    for (int e = 0; e < k_count / 4; ++e) {
      const u32 pair = row<u32>(w, i.o[static_cast<std::size_t>(4 + e)])[l];
      for (int s = 0; s < 2; ++s)
        t.a[g + 8 * (e & 1)][2 * q + s + 8 * (e >> 1)] = value_of<Half>(pair, s);
    }
    for (int e = 0; e < k_count / 8; ++e) {
      const u32 pair = row<u32>(w, i.o[static_cast<std::size_t>(8 + e)])[l];
      for (int s = 0; s < 2; ++s) t.b[2 * q + s + 8 * e][g] = value_of<Half>(pair, s);
    }
    for (int e = 0; e < 4; ++e)
      t.c[g + 8 * (e >> 1)][2 * q + (e & 1)] =
          std::bit_cast<float>(row<u32>(w, i.o[static_cast<std::size_t>(10 + e)])[l]);
  }
}

template <bool Half>
step mma(warp& w, const instruction& i, u32 m) {
  if (m != 0xffffffffu)
    throw fault{"mma runs without all 32 lanes", std::countr_zero(~m),
                "all 32 lanes must execute it together"};
  tile t;
  gather<Half>(w, i, t);
  const int k_count = i.vector;
  constexpr int least = Half ? -14 : -126;
  constexpr float least_power = Half ? 0x1p-14f : 0x1p-126f;
  alignas(32) float b_power[max_k][columns_n];
  bool guard = true;
  const auto moderate = [](float v) {
    return v == 0.0f || (std::fabs(v) >= 0x1p-30f && std::fabs(v) <= 0x1p30f);
  };
  for (int k = 0; k < k_count; ++k) {
    for (int n = 0; n < columns_n; ++n) {
      b_power[k][n] = power_below(t.b[k][n], least_power);
      guard = guard & moderate(t.b[k][n]);
    }
    for (int r = 0; r < rows_m; ++r) guard = guard & moderate(t.a[r][k]);
  }
  for (int r = 0; r < rows_m; ++r) {
    alignas(32) float out[columns_n];
    if (!guard || !row_fast(t, b_power, r, k_count, least_power, out)) {
      for (int n = 0; n < columns_n; ++n)
        out[n] = std::bit_cast<float>(
            dot_exact(t.a[r], &t.b[0][n], columns_n, t.c[r][n], k_count, least));
    }
    for (int n = 0; n < columns_n; ++n)
      row<u32>(w, i.o[static_cast<std::size_t>((r / 8) * 2 + (n & 1))])[4 * (r % 8) + n / 2] =
          std::bit_cast<u32>(out[n]);
  }
  ++w.mmas;
  return step::next;
}

}  // namespace

#ifdef KVPROOF_EMULATOR_AVX2
handler select_tensor_avx2(const instruction& i) {
#else
handler select_tensor_baseline(const instruction& i) {
#endif
  if (i.op != opcode::mma) return nullptr;
  return i.t == type::f16 ? mma<true> : mma<false>;
}

}  // namespace kvproof::gpu::emulator
