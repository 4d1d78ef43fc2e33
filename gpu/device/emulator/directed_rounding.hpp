// f32 and f64 arithmetic under .rz, .rm and .rp: every operation exactly in integers, then one
// rounding.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "gpu/device/emulator/float_formats.hpp"

namespace kvproof::gpu::emulator {
namespace {  // every translation unit is built for its own instruction set

__extension__ using wide_uint = unsigned __int128;

constexpr bool is_directed(rounding r) {
  return r == rounding::rz || r == rounding::rm || r == rounding::rp;
}

// (-1)^negative * (mantissa + t) * 2^exponent; 0 < t < 1 where inexact, then mantissa has at least
// 64 bits.
struct exact_value {
  bool negative = false;
  wide_uint mantissa = 0;
  int exponent = 0;
  bool inexact = false;
};

inline int leading_zeros(wide_uint m) {
  const auto upper = static_cast<std::uint64_t>(m >> 64);
  return upper != 0 ? std::countl_zero(upper)
                    : 64 + std::countl_zero(static_cast<std::uint64_t>(m));
}

// A finite value.
inline exact_value exact_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t hidden = field == 0 ? 0 : std::uint64_t{1} << 52;
  return {(bits >> 63) != 0, (bits & ((std::uint64_t{1} << 52) - 1)) | hidden,
          std::max(field, 1) - 1075};
}

inline std::uint64_t encode(const exact_value& x, float_format f, rounding mode) {
  if (x.mantissa == 0) return encode(x.negative, 0, 0, f, mode);
  // The upper 64 bits; the lowest, far below the rounding position, also stands for all others.
  const int shift = leading_zeros(x.mantissa);
  const wide_uint m = x.mantissa << shift;
  const bool rest = x.inexact || static_cast<std::uint64_t>(m) != 0;
  return encode(x.negative, static_cast<std::uint64_t>(m >> 64) | std::uint64_t{rest},
                x.exponent - shift + 64, f, mode);
}

inline exact_value exact_product(const exact_value& a, const exact_value& b) {
  return {a.negative != b.negative, a.mantissa * b.mantissa, a.exponent + b.exponent};
}

// Exact mantissas of at most 106 bits.
inline exact_value exact_sum(exact_value x, exact_value y, rounding mode) {
  if (x.mantissa == 0 && y.mantissa == 0)
    return {x.negative == y.negative ? x.negative : mode == rounding::rm};
  if (x.mantissa == 0) return y;
  if (y.mantissa == 0) return x;
  const auto lead = [](const exact_value& v) { return v.exponent - leading_zeros(v.mantissa); };
  if (lead(x) < lead(y)) std::swap(x, y);
  const int up = leading_zeros(x.mantissa) - 2;  // leaves room for a carry
  x.mantissa <<= up;
  x.exponent -= up;
  const int shift = y.exponent - x.exponent;
  bool lost = false;
  if (shift >= 0) {
    y.mantissa <<= shift;
  } else if (shift <= -128) {
    y.mantissa = 0;
    lost = true;
  } else {
    const wide_uint kept = y.mantissa >> -shift;
    lost = kept << -shift != y.mantissa;
    y.mantissa = kept;
  }
  x.inexact = lost;
  if (x.negative == y.negative) {
    x.mantissa += y.mantissa;
  } else if (x.mantissa >= y.mantissa) {
    // Bits are lost of a y below x / 2^20 only, so that x - y keeps its length.
    x.mantissa -= y.mantissa + (lost ? 1 : 0);
    if (x.mantissa == 0) x.negative = mode == rounding::rm;
  } else {
    x.mantissa = y.mantissa - x.mantissa;
    x.negative = y.negative;
  }
  return x;
}

// Nonzero a and b of at most 53 bits.
inline exact_value exact_quotient(const exact_value& a, const exact_value& b) {
  const int up_a = leading_zeros(a.mantissa);
  const int up_b = leading_zeros(b.mantissa) - 64;
  const wide_uint n = a.mantissa << up_a;
  const wide_uint d = b.mantissa << up_b;
  const wide_uint q = n / d;
  return {a.negative != b.negative, q, a.exponent - up_a - (b.exponent - up_b), q * d != n};
}

// Positive a.
inline exact_value exact_root(const exact_value& a) {
  int up = leading_zeros(a.mantissa);
  if (((a.exponent - up) & 1) != 0) --up;
  const wide_uint n = a.mantissa << up;
  wide_uint root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const wide_uint next = root | wide_uint{1} << bit;
    if (next * next <= n) root = next;
  }
  return {false, root, (a.exponent - up) / 2, root * root != n};
}

// a op b (op c) of finite operands whose result is finite before rounding.
inline exact_value exact_result(opcode op, double a, double b, double c, rounding mode) {
  const exact_value x = exact_of(a);
  switch (op) {
    case opcode::add:
      return exact_sum(x, exact_of(b), mode);
    case opcode::sub:
      return exact_sum(x, exact_of(-b), mode);
    case opcode::mul_lo:
      return exact_product(x, exact_of(b));
    case opcode::fma:
      return exact_sum(exact_product(x, exact_of(b)), exact_of(c), mode);
    case opcode::div:
      return a == 0 ? exact_of(std::signbit(a) != std::signbit(b) ? -0.0 : 0.0)
                    : exact_quotient(x, exact_of(b));
    case opcode::rcp:
      return exact_quotient(exact_of(1.0), x);
    default:
      return a == 0 ? x : exact_root(x);  // sqrt
  }
}

}  // namespace
}  // namespace kvproof::gpu::emulator
