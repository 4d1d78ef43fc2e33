// Conversions of halves on the whole domain, and the portable functions against the C library.
#include "traces/half.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numbers>

#include "traces/portable_math.hpp"

namespace kvproof::traces::test {

namespace {

half_bits half_of(int i) { return static_cast<half_bits>(i); }

}  // namespace

BOOST_AUTO_TEST_SUITE(half)

BOOST_AUTO_TEST_CASE(every_half_there_and_back) {
  for (int i = 0; i < 0x10000; ++i) {
    const double x = half_to_double(half_of(i));
    BOOST_REQUIRE(std::isfinite(x) == is_finite(half_of(i)));
    if (is_finite(half_of(i))) BOOST_REQUIRE(finite_half(x) == half_of(i));
  }
  BOOST_TEST(half_to_double(0x0001) == 0x1p-24);
  BOOST_TEST(half_to_double(0x3c01) == 1.0 + 0x1p-10);
  BOOST_TEST(half_to_double(0xfbff) == -65504.0);
}

BOOST_AUTO_TEST_CASE(rounds_to_nearest_even) {
  for (int i = 0; i < 0x7bff; ++i) {
    const double low = half_to_double(half_of(i));
    const double high = half_to_double(half_of(i + 1));
    const double middle = (low + high) / 2;  // exact
    BOOST_REQUIRE(finite_half(middle) == half_of(i % 2 == 0 ? i : i + 1));
    BOOST_REQUIRE(finite_half(std::nextafter(middle, 0.0)) == half_of(i));
    BOOST_REQUIRE(finite_half(-std::nextafter(middle, 1e9)) == half_of((i + 1) | 0x8000));
  }
}

BOOST_AUTO_TEST_CASE(is_never_infinite) {
  for (const double x : {65504.0, 65519.9, 65520.0, 1e5, 1e300, HUGE_VAL}) {
    BOOST_TEST(finite_half(x) == 0x7bff);
    BOOST_TEST(finite_half(-x) == 0xfbff);
  }
  BOOST_TEST(finite_half(-0.0) == 0x8000);
  BOOST_TEST(finite_half(1e-300) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(portable_math)

BOOST_AUTO_TEST_CASE(exp2_and_log2) {
  for (double x = -100; x < 100; x += 0.0371) {
    const double y = portable_exp2(x);
    BOOST_TEST(!(std::fabs(y / std::exp2(x) - 1) > 1e-14), "exp2 of " << x);
    BOOST_TEST(!(std::fabs(portable_log2(y) - x) > 1e-13), "log2 of " << y);
  }
  BOOST_TEST(portable_exp2(10) == 1024.0);
  BOOST_TEST(portable_log2(0x1p-30) == -30.0);
}

BOOST_AUTO_TEST_CASE(turn) {
  for (double turns = -3; turns < 3; turns += 0.00517) {
    const auto [sine, cosine] = portable_turn(turns);
    const double angle = 2 * std::numbers::pi * turns;
    BOOST_TEST(!(std::fabs(sine - std::sin(angle)) > 1e-14), "sine of " << turns << " turns");
    BOOST_TEST(!(std::fabs(cosine - std::cos(angle)) > 1e-14), "cosine of " << turns << " turns");
  }
  BOOST_TEST(portable_turn(1e9 + 0.25).sine == 1.0);
  BOOST_TEST(portable_turn(1e9 + 0.5).cosine == -1.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test
