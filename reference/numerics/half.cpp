// The rare cases of the conversions between 16-bit and 32-bit floating point, see half.hpp.
#include "reference/numerics/half.hpp"

#include <bit>

namespace kvproof::reference {

float subnormal_half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  // fraction * 2^-24, normalised: the leading bit of the fraction becomes the hidden bit.
  const std::uint32_t fraction = bits & 0x3ffu;
  const int shift = std::countl_zero(fraction) - 21;
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(113 - shift) << 23 |
                              ((fraction << shift) & 0x3ffu) << 13);
}

std::uint16_t float_to_half_special(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return sign;  // below 2^-25: rounds to zero
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t dropped = 126 - exponent;  // the result counts units of 2^-24
  const std::uint32_t kept = significand >> dropped;
  const std::uint32_t rest = significand & ((1u << dropped) - 1);
  const std::uint32_t half = 1u << (dropped - 1);
  const std::uint32_t up = (rest > half || (rest == half && (kept & 1u) != 0)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (kept + up));  // a carry moves into the exponent
}

float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace kvproof::reference
