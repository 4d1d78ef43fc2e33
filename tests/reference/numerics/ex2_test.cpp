// The model of ex2.approx.ftz.f32: special values, exactness at integers, error, monotonicity. What
// the hardware computes is compared in tests/golden/ex2_test.cpp.
#include "reference/numerics/ex2.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using kvproof::reference::ex2_approx;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float from_bits(std::uint32_t x) { return std::bit_cast<float>(x); }

}  // namespace

BOOST_AUTO_TEST_CASE(special_values) {
  BOOST_TEST(bits_of(ex2_approx(0.0f)) == bits_of(1.0f));
  BOOST_TEST(bits_of(ex2_approx(-0.0f)) == bits_of(1.0f));
  BOOST_TEST(bits_of(ex2_approx(from_bits(0x007fffffu))) ==
             bits_of(1.0f));  // subnormal counts as 0
  BOOST_TEST(bits_of(ex2_approx(from_bits(0x807fffffu))) == bits_of(1.0f));
  BOOST_TEST(bits_of(ex2_approx(infinity)) == bits_of(infinity));
  BOOST_TEST(bits_of(ex2_approx(-infinity)) == 0u);
  BOOST_TEST(bits_of(ex2_approx(128.0f)) == bits_of(infinity));
  BOOST_TEST(bits_of(ex2_approx(from_bits(0x42ffffffu))) == 0x7f7fffa8u);  // the largest below 128
  BOOST_TEST(bits_of(ex2_approx(-126.0f)) == 0x00800000u);
  BOOST_TEST(bits_of(ex2_approx(from_bits(0xc2fc0001u))) == 0u);  // the first below -126
  BOOST_TEST(bits_of(ex2_approx(-1000.0f)) == 0u);
  for (const std::uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xffc00000u, 0xffffffffu}) {
    BOOST_TEST(bits_of(ex2_approx(from_bits(nan))) == 0x7fffffffu);
  }
}

BOOST_AUTO_TEST_CASE(exact_at_integers) {
  for (int n = -126; n <= 127; ++n) {
    BOOST_TEST(bits_of(ex2_approx(static_cast<float>(n))) == bits_of(std::ldexp(1.0f, n)));
  }
}

// A negative argument uses the fraction's one's complement: the point one step of 2^-23 lower. So
// 2^x for x = -n - f equals 2^(1 - f - 2^-23), scaled, and not 2^(1 - f).
BOOST_AUTO_TEST_CASE(negative_arguments_use_the_complement) {
  for (std::uint32_t fraction = 1; fraction < 1u << 23; fraction += 4099) {
    const float x = -2.0f - static_cast<float>(fraction >> 1) * 0x1p-22f;
    if (std::floor(x) == x) continue;
    const auto low_bits = static_cast<std::uint32_t>(-(x + 2.0f) * 0x1p23f);
    const float mirrored = static_cast<float>((1u << 23) - 1 - low_bits) * 0x1p-23f;
    BOOST_REQUIRE_EQUAL(bits_of(ex2_approx(x)), bits_of(ex2_approx(mirrored) * 0x1p-3f));
  }
}

BOOST_AUTO_TEST_CASE(error_and_monotonicity) {
  double worst = 0;
  float before = 0;
  for (std::uint32_t bits = 0xc2fc0000u; bits > 0x80000000u; bits -= 8191) {  // -126 .. -0, rising
    const float x = from_bits(bits);
    const float y = ex2_approx(x);
    if (!(y >= before)) BOOST_FAIL(fmt::format("falls at {:#010x}", bits));
    before = y;
    const double exact = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::fabs(y - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
  }
  BOOST_TEST(worst <= 2.0626);  // 2.0625 ulp over all inputs, measured on an H200
  BOOST_TEST(worst > 1.0);      // a correctly rounded function is not the hardware's
}

// All 2^23 fractions in [0, 1), of which every result's significand is one.
BOOST_AUTO_TEST_CASE(every_fraction) {
  std::uint32_t before = bits_of(1.0f);
  for (std::uint32_t u = 1; u < 1u << 23; ++u) {
    const float x = static_cast<float>(u) * 0x1p-23f;
    const float y = ex2_approx(x);
    if (!(bits_of(y) - before <= 3)) BOOST_FAIL(fmt::format("jumps or falls at {:a}", x));
    if (!(std::fabs(y - std::exp2(static_cast<double>(x))) <= 1.4 * 0x1p-23)) {
      BOOST_FAIL(fmt::format("2^{:a} is given as {:a}", x, y));
    }
    before = bits_of(y);
  }
}
