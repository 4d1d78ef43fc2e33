// Query rows in fixed point: the vectors of golden_vectors.md section 4, and what holds for any
// row.
#include "reference/attention/fixed_point_query.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "reference/numerics/half.hpp"
#include "tests/reference/formats/golden_blocks.hpp"
#include "tests/reference/formats/seeded_values.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using namespace kvproof::tests;

BOOST_AUTO_TEST_SUITE(fixed_point)

BOOST_AUTO_TEST_CASE(golden_rows) {
  const auto blocks = read_blocks("reference/spec/golden_vectors.md", "fixed_point");
  BOOST_TEST(blocks.size() >= 5);
  for (const fenced_block& block : blocks) {
    BOOST_TEST_CONTEXT(values_of(block, "name").at(0)) {
      const std::vector<half_bits> q = halves_of(block, "q");
      const fixed_point_query row = to_fixed_point(q);
      BOOST_TEST(bits_of(row.qm) == hex(values_of(block, "qm").at(0)));
      BOOST_TEST(bits_of(row.r) == hex(values_of(block, "r").at(0)));
      BOOST_TEST(bits_of(row.unit) == hex(values_of(block, "unit").at(0)));
      const line_words products = values_of(block, "products"), qi = values_of(block, "qi"),
                       hi = values_of(block, "hi"), lo = values_of(block, "lo");
      BOOST_REQUIRE_EQUAL(row.qi.size(), q.size());
      for (std::size_t i = 0; i < q.size(); ++i) {
        BOOST_TEST(bits_of(half_to_float(q[i]) * row.r) == hex(products.at(i)));
        BOOST_TEST(int{row.qi[i]} == std::stoi(qi.at(i)), "element " << i);
        const int high = std::stoi(hi.at(i)), low = std::stoi(lo.at(i));
        BOOST_TEST(256 * high + low == int{row.qi[i]});
        BOOST_TEST(std::max({high, low, -high, -low - 1}) <= 127);
      }
    }
  }
}

// The largest element of a row is +-32639, for every finite half.
BOOST_AUTO_TEST_CASE(the_largest_element_fills_the_range) {
  std::size_t mismatches = 0;
  for (half_bits bits = 1; bits < 0x7c00; ++bits) {
    const auto negative = static_cast<half_bits>(bits | 0x8000);
    const fixed_point_query row = to_fixed_point(std::array{bits, negative, half_bits{0}});
    mismatches += row.qi != std::vector<std::int16_t>{32639, -32639, 0};
    mismatches += row.qm != half_to_float(bits);
  }
  BOOST_TEST(mismatches == 0u);
}

// r, the product and unit are rounded, each by 2^-24 of at most 32639: 0.002 of a unit a time.
BOOST_AUTO_TEST_CASE(elements_are_half_a_unit_off_at_most) {
  seeded_values random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<half_bits> q(64);
    for (half_bits& x : q) x = i % 2 ? random.finite_half() : random.normal_half();
    const fixed_point_query row = to_fixed_point(q);
    for (std::size_t channel = 0; channel < q.size(); ++channel) {
      const double difference = row.qi[channel] * double{row.unit} - half_to_float(q[channel]);
      BOOST_REQUIRE(std::fabs(difference) <= 0.506 * row.unit);
    }
  }
}

BOOST_AUTO_TEST_CASE(dot_products_are_exact) {
  seeded_values random(2);
  for (const std::size_t size : {0, 1, 7, 64, 128}) {
    std::vector<std::int16_t> codes(size), qi(size);
    std::int64_t expected = 0;
    for (std::size_t i = 0; i < size; ++i) {
      codes[i] = static_cast<std::int16_t>(random.below(256));
      qi[i] = static_cast<std::int16_t>(random.below(2 * 32639 + 1) - 32639);
      expected += std::int64_t{codes[i]} * qi[i];
    }
    BOOST_TEST(integer_dot(codes, qi) == expected);
  }
}

BOOST_AUTO_TEST_SUITE_END()
