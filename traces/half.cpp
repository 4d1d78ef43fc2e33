#include "traces/half.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvproof::traces {

namespace {

constexpr int fraction_bits = 10;
constexpr int min_exponent = -14;  // of normal halves; subnormals share its spacing
constexpr double max_half = 65504.0;

}  // namespace

double half_to_double(half_bits bits) {
  const std::uint64_t sign = std::uint64_t{bits & 0x8000u} << 48;
  const unsigned exponent = (bits & half_exponent_mask) >> fraction_bits;
  const std::uint64_t fraction = bits & ((1u << fraction_bits) - 1);
  if (exponent == 0) {
    const double magnitude = static_cast<double>(fraction) * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  // Bias 1023 instead of 15, 52 bits of fraction instead of 10.
  const std::uint64_t wide = exponent == 31 ? 2047 : exponent + 1023 - 15;
  return std::bit_cast<double>(sign | wide << 52 | fraction << 42);
}

half_bits finite_half(double x) {
  const auto sign = static_cast<half_bits>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::min(std::fabs(x), max_half);
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
  exponent = magnitude == 0 ? min_exponent : std::max(exponent - 1, min_exponent);
  // The quotient by the spacing of halves is exact: fewer than 2^11 spacings and a tail that
  // decides the rounding.
  const double spacings = std::ldexp(magnitude, fraction_bits - exponent);
  const double floor = std::floor(spacings);
  auto count = static_cast<int>(floor);
  const double tail = spacings - floor;
  if (tail > 0.5 || (tail == 0.5 && (count & 1) != 0)) ++count;
  // A carry out of the fraction moves into the exponent by itself.
  const int biased = exponent - min_exponent;  // 0: subnormal or smallest binade
  return static_cast<half_bits>(sign | ((biased << fraction_bits) + count));
}

}  // namespace kvproof::traces
