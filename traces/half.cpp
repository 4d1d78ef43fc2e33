#include "traces/half.hpp"

#include <algorithm>
#include <cmath>

namespace kvproof::traces {

namespace {

constexpr int fraction_bits = 10;
constexpr int exponent_bias = 15;
constexpr int min_exponent = -14;  // of normal halves; subnormals share its spacing
constexpr double max_half = 65504.0;

}  // namespace

double half_to_double(half_bits bits) {
  const int exponent = (bits & half_exponent_mask) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  const int significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - exponent_bias - fraction_bits);
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
