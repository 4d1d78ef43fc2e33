// The comparator sees every difference, says where it is by axis name, what both sides hold and how
// far apart they are, and guesses what the differing places have in common.
#include "verify/compare.hpp"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace kvproof::verify {
namespace {

using bits = std::vector<std::uint32_t>;

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
constexpr float infinity = std::numeric_limits<float>::infinity();

const std::array<axis, 3> axes = {axis{"sequence", 3}, {"q_head", 5}, {"channel", 64}};
constexpr std::int64_t elements = 3 * 5 * 64;

bits ramp() {
  bits x(elements);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = bits_of(1.0f + static_cast<float>(i));
  return x;
}

mismatch_report difference(const bits& expected, const bits& actual) {
  const comparison c = compare_floats("out", axes, expected, actual);
  BOOST_TEST(c.compared == std::ssize(expected));
  BOOST_TEST_REQUIRE(c.mismatch.has_value());
  return *c.mismatch;
}

// Flips one bit in all elements that `chosen` takes by (sequence, q_head, channel).
template <typename Chosen>
std::string pattern_of(Chosen chosen) {
  bits actual = ramp();
  for (std::int64_t i = 0; i < elements; ++i) {
    if (chosen(i / 320, i / 64 % 5, i % 64)) actual[static_cast<std::size_t>(i)] ^= 1;
  }
  return difference(ramp(), actual).pattern;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equal_tensors_have_no_mismatch) {
  const comparison c = compare_floats("out", axes, ramp(), ramp());
  BOOST_TEST(c.compared == elements);
  BOOST_TEST(!c.mismatch.has_value());
}

BOOST_AUTO_TEST_CASE(the_first_difference_is_named_with_its_bits_and_distance) {
  bits expected = ramp(), actual = ramp();
  expected[2 * 320 + 4 * 64 + 17] = 0x3f800000u;
  actual[2 * 320 + 4 * 64 + 17] = 0x3f800003u;
  actual[2 * 320 + 4 * 64 + 18] ^= 0x100u;
  const mismatch_report report = difference(expected, actual);
  BOOST_TEST(report.count == 2);
  BOOST_TEST(report.first ==
             "out[sequence=2, q_head=4, channel=17]: expected 0x3f800000 (1), got 0x3f800003 "
             "(1.00000036), 3 ulp apart");
}

BOOST_AUTO_TEST_CASE(any_flipped_bit_is_found_at_its_coordinates) {
  BOOST_TEST(rc::check([] {
    const auto sequences = *rc::gen::inRange<std::int64_t>(1, 5);
    const auto heads = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto channels = *rc::gen::inRange<std::int64_t>(1, 130);
    const std::array<axis, 3> shape = {axis{"a", sequences}, {"b", heads}, {"c", channels}};
    const std::int64_t size = sequences * heads * channels;
    bits expected(static_cast<std::size_t>(size));
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Finite: of a NaN, only the payload could change.
      expected[i] = (seed + static_cast<std::uint32_t>(i)) * 2654435761u;
      if ((expected[i] & 0x7f800000u) == 0x7f800000u) expected[i] ^= 0x00800000u;
    }
    const std::int64_t at = *rc::gen::inRange<std::int64_t>(0, size);
    const int bit = *rc::gen::inRange(0, 32);
    bits actual = expected;
    actual[static_cast<std::size_t>(at)] ^= 1u << bit;
    const comparison c = compare_floats("x", shape, expected, actual);
    RC_ASSERT(c.mismatch.has_value());
    RC_ASSERT(c.mismatch->count == 1);
    RC_ASSERT(c.mismatch->first.starts_with(
        fmt::format("x[a={}, b={}, c={}]: expected 0x{:08x} (", at / channels / heads,
                    at / channels % heads, at % channels, expected[static_cast<std::size_t>(at)])));
    RC_ASSERT(c.mismatch->first.find(fmt::format(
                  "got 0x{:08x} (", actual[static_cast<std::size_t>(at)])) != std::string::npos);
    const comparison exact = compare_exact<std::int32_t>(
        "x", shape, std::vector<std::int32_t>(expected.begin(), expected.end()),
        std::vector<std::int32_t>(actual.begin(), actual.end()));
    RC_ASSERT(exact.mismatch.has_value());
    RC_ASSERT(exact.mismatch->count == 1);
    RC_ASSERT(exact.mismatch->first ==
              fmt::format("x[a={}, b={}, c={}]: expected 0x{:08x}, got 0x{:08x}",
                          at / channels / heads, at / channels % heads, at % channels,
                          expected[static_cast<std::size_t>(at)],
                          actual[static_cast<std::size_t>(at)]));
  }));
}

BOOST_AUTO_TEST_CASE(nans_are_equal_and_zeros_of_other_signs_are_not) {
  const std::array<axis, 1> one = {axis{"i", 2}};
  BOOST_TEST(
      !compare_floats("x", one, bits{0x7fc00000u, 0x7f800001u}, bits{0xffffffffu, 0x7fc00000u})
           .mismatch.has_value());
  const comparison zeros = compare_floats("x", one, bits{0, 1}, bits{0x80000000u, 1});
  BOOST_TEST_REQUIRE(zeros.mismatch.has_value());
  BOOST_TEST(zeros.mismatch->first ==
             "x[i=0]: expected 0x00000000 (0), got 0x80000000 (-0), 1 ulp apart");
  BOOST_TEST(zeros.mismatch->pattern == "only the sign of zero");
  // A NaN against a number has no distance; infinity is not a NaN.
  const comparison nan = compare_floats("x", one, bits{0x7f800000u, 1}, bits{0x7fc00000u, 1});
  BOOST_TEST_REQUIRE(nan.mismatch.has_value());
  BOOST_TEST(nan.mismatch->first == "x[i=0]: expected 0x7f800000 (inf), got 0x7fc00000 (nan)");
}

BOOST_AUTO_TEST_CASE(poison_is_called_never_written) {
  bits actual = ramp();
  actual[0] = 0xcdcdcdcdu;
  BOOST_TEST(difference(ramp(), actual).first.ends_with(", never written"));
}

BOOST_AUTO_TEST_CASE(tensors_of_other_sizes_differ) {
  bits shorter = ramp();
  shorter.pop_back();
  BOOST_TEST(difference(ramp(), shorter).first == "out: 960 elements expected, got 959");
  const std::array<axis, 1> one = {axis{"i", 1}};
  const std::vector<std::uint16_t> none, some = {1};
  BOOST_TEST(compare_exact<std::uint16_t>("k", one, some, none).mismatch.has_value());
}

BOOST_AUTO_TEST_CASE(ulp_distance_counts_representable_numbers) {
  BOOST_TEST(ulp_distance(bits_of(1.0f), bits_of(1.0f)) == 0);
  BOOST_TEST(ulp_distance(bits_of(1.0f), bits_of(std::nextafter(1.0f, 2.0f))) == 1);
  BOOST_TEST(ulp_distance(bits_of(-1.0f), bits_of(std::nextafter(-1.0f, -2.0f))) == 1);
  BOOST_TEST(ulp_distance(bits_of(0.0f), bits_of(-0.0f)) == 1);
  BOOST_TEST(ulp_distance(0x00000001u, 0x80000001u) == 3);  // smallest subnormals: +s, +0, -0, -s
  BOOST_TEST(ulp_distance(bits_of(1.0f), bits_of(-1.0f)) == 2 * std::int64_t{0x3f800000} + 1);
  BOOST_TEST(ulp_distance(bits_of(std::numeric_limits<float>::max()), bits_of(infinity)) == 1);
  BOOST_TEST(ulp_distance(bits_of(infinity), bits_of(-infinity)) ==
             2 * std::int64_t{0x7f800000} + 1);
  BOOST_TEST(rc::check([](std::uint32_t a, std::uint32_t b) {
    RC_ASSERT(ulp_distance(a, b) == ulp_distance(b, a));
    RC_ASSERT((ulp_distance(a, b) == 0) == (a == b));
  }));
}

BOOST_AUTO_TEST_CASE(the_pattern_names_rows_lanes_and_the_tail) {
  using i = std::int64_t;
  BOOST_TEST(pattern_of([](i, i h, i) { return h == 3; }) == "only q_head = 3");
  BOOST_TEST(pattern_of([](i, i, i c) { return c % 32 == 7; }) == "only channel = 7 mod 32");
  BOOST_TEST(pattern_of([](i, i, i c) { return c % 8 == 5; }) == "only channel = 5 mod 8");
  BOOST_TEST(pattern_of([](i, i, i c) { return c % 2 == 1; }) == "only channel = 1 mod 2");
  BOOST_TEST(pattern_of([](i, i, i c) { return c >= 48; }) ==
             "only the last tile of channel (from 48)");
  BOOST_TEST(pattern_of([](i s, i, i c) { return s == 1 && c % 4 == 2; }) ==
             "only sequence = 1, only channel = 2 mod 4");
  BOOST_TEST(pattern_of([](i, i, i) { return true; }) == "every element");
  BOOST_TEST(pattern_of([](i, i, i c) { return c == 5 || c == 22; }) == "");
  BOOST_TEST(pattern_of([](i s, i h, i c) { return s + h + c == 0; }) == "");  // one has no pattern
}

}  // namespace kvproof::verify
