// IEEE binary16 and bfloat16 to and from binary32, by integer code: the same bits on every machine
// and under every floating-point mode. Rounding is to nearest even, subnormals are kept, NaN
// becomes 0x7fff.
#pragma once

#include <bit>
#include <cstdint>

namespace kvproof::reference {

// What float_to_half does with NaN, with a half below 2^-14 and with overflow.
[[nodiscard]] std::uint16_t float_to_half_special(float x);
// Subnormal halves.
[[nodiscard]] float subnormal_half_to_float(std::uint16_t bits);

[[nodiscard]] inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude - 0x0400u < 0x7800u) {  // normal
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  }
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
  return magnitude == 0 ? std::bit_cast<float>(sign) : subnormal_half_to_float(bits);
}

[[nodiscard]] inline std::uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // From 2^-14 to below 65520: half a unit, less the tie that goes down to even, carries upwards.
  if (magnitude - 0x38800000u < 0x477ff000u - 0x38800000u) {
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
    return static_cast<std::uint16_t>(sign | rounded >> 13);
  }
  return magnitude == 0 ? static_cast<std::uint16_t>(sign) : float_to_half_special(x);
}

[[nodiscard]] float bfloat16_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_bfloat16(float x);

}  // namespace kvproof::reference
