#include "traces/portable_math.hpp"

#include <cmath>
#include <numbers>

namespace kvproof::traces {

namespace {

// sum over k < terms of x^k / k!
double exponential_series(double x, int terms) {
  double sum = 1.0;
  for (int k = terms - 1; k >= 1; --k) sum = 1.0 + sum * x / k;
  return sum;
}

// Taylor series of an angle of at most pi / 4.
sine_cosine small_angle(double x) {
  const double square = x * x;
  double sine = 1.0;
  double cosine = 1.0;
  for (int k = 9; k >= 1; --k) {
    sine = 1.0 - sine * square / ((2.0 * k) * (2.0 * k + 1.0));
    cosine = 1.0 - cosine * square / ((2.0 * k - 1.0) * (2.0 * k));
  }
  return {sine * x, cosine};
}

}  // namespace

double portable_exp2(double x) {
  const double whole = std::floor(x + 0.5);
  return std::ldexp(exponential_series((x - whole) * std::numbers::ln2, 18),
                    static_cast<int>(whole));
}

double portable_log2(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 atanh((m - 1) / (m + 1))
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  double sum = 0.0;
  for (int k = 12; k >= 0; --k) sum = 1.0 / (2.0 * k + 1.0) + sum * square;
  return exponent + 2.0 * s * sum * std::numbers::log2e;
}

sine_cosine portable_turn(double turns) {
  const double fraction = turns - std::floor(turns);
  const double quarters = std::floor(fraction * 4.0 + 0.5);  // nearest quarter turn, 0 to 4
  const sine_cosine rest = small_angle((fraction - quarters / 4.0) * (2.0 * std::numbers::pi));
  switch (static_cast<int>(quarters) & 3) {
    case 0:
      return rest;
    case 1:
      return {rest.cosine, -rest.sine};
    case 2:
      return {-rest.sine, -rest.cosine};
    default:
      return {-rest.cosine, rest.sine};
  }
}

}  // namespace kvproof::traces
