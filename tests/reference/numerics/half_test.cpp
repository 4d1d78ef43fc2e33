// Conversions against an independent method: doubles scaled to the unit of the target and rounded
// by nearbyint. Exhaustive over the 16-bit patterns and over both sides of every rounding boundary.
#include "reference/numerics/half.hpp"

#include <fmt/format.h>

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <functional>

namespace {

using namespace kvproof::reference;

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

struct narrow_format {
  int fraction_bits;
  int least_exponent;     // of a normal number
  double first_infinite;  // smallest magnitude that rounds to infinity
  std::uint16_t infinity;
};
constexpr narrow_format half_format{10, -14, 65520.0, 0x7c00};
constexpr narrow_format bfloat16_format{7, -126, 0x1.ffp127, 0x7f80};

double value_of(std::uint16_t bits, const narrow_format& f) {
  const int field = (bits & 0x7fff) >> f.fraction_bits;
  const double fraction = bits & ((1 << f.fraction_bits) - 1);
  const double magnitude = field == 0 ? std::ldexp(fraction, f.least_exponent - f.fraction_bits)
                                      : std::ldexp(fraction + (1 << f.fraction_bits),
                                                   field - 1 + f.least_exponent - f.fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t rounded(double x, const narrow_format& f) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7fff;
  if (magnitude >= f.first_infinite) return static_cast<std::uint16_t>(sign | f.infinity);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), f.least_exponent);
  const int unit = exponent - f.fraction_bits;
  const int count = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  return static_cast<std::uint16_t>(sign |
                                    (count + ((exponent - f.least_exponent) << f.fraction_bits)));
}

using widen = std::function<float(std::uint16_t)>;
using narrow = std::function<std::uint16_t(float)>;

void check_every_pattern(const widen& to_float, const narrow& from_float, const narrow_format& f) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float x = to_float(bits);
    const int magnitude = bits & 0x7fff;
    if (magnitude > f.infinity) {
      if (!std::isnan(x)) BOOST_FAIL(fmt::format("{:#06x} became {}", bits, x));
      if (from_float(x) != 0x7fff) BOOST_FAIL(fmt::format("{:#06x} is not 0x7fff", bits));
      continue;
    }
    if (magnitude < f.infinity) {
      if (bits_of(x) != bits_of(static_cast<float>(value_of(bits, f)))) {
        BOOST_FAIL(fmt::format("{:#06x} became {}", bits, x));
      }
    } else {
      if (!(std::isinf(x) && std::signbit(x) == (bits >> 15 != 0))) {
        BOOST_FAIL(fmt::format("{:#06x} became {}", bits, x));
      }
    }
    if (from_float(x) != bits) {
      BOOST_FAIL(fmt::format("{:#06x} came back as {:#06x}", bits, from_float(x)));
    }
  }
}

// Every fp32 number within two units of each boundary between two neighbours of the narrow format.
void check_every_boundary(const narrow& from_float, const narrow_format& f) {
  for (std::uint32_t pattern = 0; pattern < f.infinity; ++pattern) {
    const auto below = static_cast<std::uint16_t>(pattern);
    const double low = value_of(below, f);
    const double high = pattern + 1 == f.infinity
                            ? 2 * f.first_infinite - low  // as if the format went on
                            : value_of(static_cast<std::uint16_t>(pattern + 1), f);
    const auto middle = static_cast<float>((low + high) / 2);
    for (int step = -2; step <= 2; ++step) {
      const float x = std::bit_cast<float>(bits_of(middle) + static_cast<std::uint32_t>(step));
      if (!std::isfinite(x)) continue;
      for (const float y : {x, -x}) {
        if (from_float(y) != rounded(y, f)) {
          BOOST_FAIL(
              fmt::format("{:a} became {:#06x}, not {:#06x}", y, from_float(y), rounded(y, f)));
        }
      }
    }
  }
}

void check_spread_of_floats(const narrow& from_float, const narrow_format& f) {
  for (std::uint32_t i = 0; i < 1u << 21; ++i) {
    const float x = std::bit_cast<float>(i * 0x9e3779b1u);  // an odd factor: 2^21 distinct patterns
    if (from_float(x) != rounded(x, f)) {
      BOOST_FAIL(fmt::format("{:a} became {:#06x}, not {:#06x}", x, from_float(x), rounded(x, f)));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(fp16_every_pattern) {
  check_every_pattern(half_to_float, float_to_half, half_format);
}
BOOST_AUTO_TEST_CASE(fp16_every_boundary) { check_every_boundary(float_to_half, half_format); }
BOOST_AUTO_TEST_CASE(fp16_spread_of_floats) { check_spread_of_floats(float_to_half, half_format); }
BOOST_AUTO_TEST_CASE(bfloat16_every_pattern) {
  check_every_pattern(bfloat16_to_float, float_to_bfloat16, bfloat16_format);
}
BOOST_AUTO_TEST_CASE(bfloat16_every_boundary) {
  check_every_boundary(float_to_bfloat16, bfloat16_format);
}
BOOST_AUTO_TEST_CASE(bfloat16_spread_of_floats) {
  check_spread_of_floats(float_to_bfloat16, bfloat16_format);
}

// Values that published conversions got wrong: flushed subnormals, truncation instead of rounding,
// a result of half the value just below a power of two, infinity where 65504 is nearest.
BOOST_AUTO_TEST_CASE(published_faults) {
  BOOST_TEST(float_to_half(0x1p-24f) == 0x0001);
  BOOST_TEST(float_to_half(0x1p-25f) == 0x0000);
  BOOST_TEST(float_to_half(0x1.8p-25f) == 0x0001);
  BOOST_TEST(float_to_half(-0x1p-25f) == 0x8000);
  BOOST_TEST(float_to_half(65519.0f) == 0x7bff);
  BOOST_TEST(float_to_half(65520.0f) == 0x7c00);
  BOOST_TEST(float_to_half(static_cast<float>(0.000976552734375)) == 0x1400);
  BOOST_TEST(float_to_half(static_cast<float>(1.5249285751529568e-05)) == 0x0100);
  BOOST_TEST(float_to_half(std::bit_cast<float>(0x7f800001u)) == 0x7fff);
  BOOST_TEST(float_to_half(std::bit_cast<float>(0xffc00000u)) == 0x7fff);
  BOOST_TEST(float_to_bfloat16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  BOOST_TEST(float_to_bfloat16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  BOOST_TEST(float_to_bfloat16(std::bit_cast<float>(0x3f80c000u)) == 0x3f81);
  BOOST_TEST(float_to_bfloat16(std::bit_cast<float>(0x7f800001u)) == 0x7fff);
  BOOST_TEST(float_to_bfloat16(std::bit_cast<float>(0xff7fffffu)) == 0xff80);
}
