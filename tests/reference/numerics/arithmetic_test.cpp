// Named fp32 operations and stated sums.
#include "reference/numerics/arithmetic.hpp"

#include <xmmintrin.h>

#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace kvproof::reference;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

BOOST_AUTO_TEST_CASE(operations_round_once_and_keep_subnormals) {
  const volatile float third = 0x1.555556p-2f, next_to_one = 0x1.000002p0f, least = 0x1p-149f;
  BOOST_TEST(same_bits(add(1.0f, 0x1p-24f), 1.0f));  // a tie goes to the even neighbour
  BOOST_TEST(same_bits(add(next_to_one, 0x1p-24f), 0x1.000004p0f));
  BOOST_TEST(same_bits(sub(next_to_one, 1.0f), 0x1p-23f));
  BOOST_TEST(same_bits(mul(least, 1.5f), 0x1p-148f));  // subnormal result, tie to even
  BOOST_TEST(same_bits(div(1.0f, 3.0f), third));
  BOOST_TEST(same_bits(div(0x1p-126f, 2.0f), 0x1p-127f));
  // The product 1 + 2^-22 + 2^-46 is not rounded before the addition.
  BOOST_TEST(same_bits(fma(next_to_one, next_to_one, -0x1.000004p0f), 0x1p-46f));
  BOOST_TEST(same_bits(sub(mul(next_to_one, next_to_one), 0x1.000004p0f), 0.0f));
}

BOOST_AUTO_TEST_CASE(rne_takes_ties_to_even) {
  BOOST_TEST(rne(0.5f) == 0);
  BOOST_TEST(rne(1.5f) == 2);
  BOOST_TEST(rne(2.5f) == 2);
  BOOST_TEST(rne(-0.5f) == 0);
  BOOST_TEST(rne(-1.5f) == -2);
  BOOST_TEST(rne(-2.5f) == -2);
  BOOST_TEST(rne(0x1.fffffep-2f) == 0);  // just below a half: x + 0.5 would be 1 in fp32
  BOOST_TEST(rne(0x1.000002p-1f) == 1);
  BOOST_TEST(rne(-2.4999998f) == -2);
  BOOST_TEST(rne(8388607.5f) == 8388608);
  BOOST_TEST(rne(16777217.0f) == 16777216);
  BOOST_TEST(rne(-32639.0f) == -32639);
  BOOST_TEST(rne(0x1p-149f) == 0);
}

BOOST_AUTO_TEST_CASE(max_ordered_zeros_and_nan) {
  BOOST_TEST(same_bits(max_ordered(0.0f, -0.0f), 0.0f));
  BOOST_TEST(same_bits(max_ordered(-0.0f, 0.0f), 0.0f));
  BOOST_TEST(same_bits(max_ordered(-0.0f, -0.0f), -0.0f));
  BOOST_TEST(same_bits(max_ordered(not_a_number, -2.0f), -2.0f));
  BOOST_TEST(same_bits(max_ordered(-2.0f, not_a_number), -2.0f));
  BOOST_TEST(std::isnan(max_ordered(not_a_number, not_a_number)));
  BOOST_TEST(same_bits(max_ordered(-infinity, -3.0f), -3.0f));
  BOOST_TEST(same_bits(max_ordered(4.0f, 3.0f), 4.0f));
  BOOST_TEST(same_bits(max_ordered(3.0f, 4.0f), 4.0f));
}

// 1 + 2^-24 rounds down, so a pair of small numbers survives only when it is added first. The data
// tell the tree from the ascending order and from both trees with other distances.
BOOST_AUTO_TEST_CASE(butterfly_sum_order) {
  constexpr float u = 0x1p-24f;
  BOOST_TEST(same_bits(butterfly_sum(std::array{1.0f, 0.0f, u, u, 0.0f, 0.0f, 0.0f, 0.0f}),
                       0x1.000002p0f));
  BOOST_TEST(same_bits(butterfly_sum(std::array{1.0f, u, 0.0f, u, 0.0f, 0.0f, 0.0f, 0.0f}), 1.0f));
  BOOST_TEST(same_bits(butterfly_sum(std::array{1.0f, 0.0f, 0.0f, 0.0f, u, 0.0f, u, 0.0f}),
                       0x1.000002p0f));
  BOOST_TEST(same_bits(butterfly_sum(std::array{1.0f, 0.0f, u, 0.0f, u, 0.0f, 0.0f, 0.0f}), 1.0f));
  BOOST_TEST(same_bits(butterfly_sum(std::array{u, u, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f}),
                       0x1.000002p0f));
}

BOOST_AUTO_TEST_CASE(environment_check_sees_every_mode) {
  BOOST_TEST(fp_environment_is_clean());
  const unsigned saved = _mm_getcsr();
  for (const unsigned mode : {0x8000u, 0x0040u, 0x2000u, 0x4000u, 0x6000u}) {  // FTZ, DAZ, RC
    _mm_setcsr(saved | mode);
    const bool clean = fp_environment_is_clean();
    _mm_setcsr(saved);
    BOOST_TEST(!clean);
  }
  _mm_setcsr(saved | 0x3fu);  // raised exception flags are no mode
  BOOST_TEST(fp_environment_is_clean());
  _mm_setcsr(saved);
}
