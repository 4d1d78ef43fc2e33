// The value of an fp16 number in double and the fp16 number nearest to a double, for statistics and
// synthesis. The normative conversions of the reference live in reference/numerics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvproof::traces {

[[nodiscard]] inline double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Rounds to nearest even, saturates at 65504: never infinite. x must not be NaN.
[[nodiscard]] inline std::uint16_t nearest_half(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fmin(std::fabs(x), 65504.0);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const auto units = static_cast<int>(
      std::nearbyint(std::ldexp(magnitude, 10 - exponent)));  // 1024..2048, less if subnormal
  return static_cast<std::uint16_t>(sign + ((exponent + 14) << 10) + units);
}

}  // namespace kvproof::traces
