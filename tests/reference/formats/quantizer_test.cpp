#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/formats/seeded_values.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::seeded_values;

namespace {

constexpr std::array all_bits = {2, 4, 8};

double value(half_bits h) { return half_to_float(h); }

// Distance to the next larger magnitude of fp16.
double half_ulp(double x) {
  const double a = std::fabs(x);
  return a < 0x1p-14 ? 0x1p-24 : std::ldexp(1.0, std::ilogb(a) - 10);
}

struct regime {
  const char* name;
  std::function<half_bits(seeded_values&)> draw;
};

const std::vector<regime>& regimes() {
  static const std::vector<regime> all = {
      {"normal", [](auto& r) { return r.normal_half(); }},
      {"any_pattern", [](auto& r) { return r.finite_half(); }},
      {"subnormal", [](auto& r) { return static_cast<half_bits>(r.below(0x0500)); }},
      {"signed_subnormal",
       [](auto& r) { return static_cast<half_bits>(r.below(0x0400) | r.below(2) << 15); }},
      {"extremes",
       [](auto& r) { return static_cast<half_bits>(0x7b00 + r.below(256) + (r.below(2) << 15)); }},
      {"halves_of_integers",
       [](auto& r) { return float_to_half(static_cast<float>(r.below(31)) / 2); }},
      {"near_constant", [](auto& r) { return static_cast<half_bits>(0x5640 + r.below(4)); }},
      {"mostly_zero", [](auto& r) { return r.below(4) ? half_bits{0x8000} : r.normal_half(); }},
  };
  return all;
}

// Calls check(x, bits) for groups of every regime, size and width; names the group on a failure.
template <typename Check>
void for_each_group(const Check& check) {
  for (std::size_t r = 0; r < regimes().size(); ++r) {
    for (const int size : {1, 2, 3, 16, 17, 64, 128}) {
      for (const int bits : all_bits) {
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
          seeded_values random(seed + 1000 * r + 100000 * static_cast<std::uint64_t>(size));
          std::vector<half_bits> x(static_cast<std::size_t>(size));
          for (half_bits& h : x) h = regimes()[r].draw(random);
          BOOST_TEST_CONTEXT("regime " << regimes()[r].name << " size " << size << " bits " << bits
                                       << " seed " << seed) {
            check(x, bits);
          }
        }
      }
    }
  }
}

struct bounds {
  double min, max;
};

bounds bounds_of(const std::vector<half_bits>& x) {
  const auto [min, max] = std::ranges::minmax_element(x, {}, value);
  return {value(*min), value(*max)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(quantize)

BOOST_AUTO_TEST_CASE(codes_scale_and_zero_stay_in_range) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const quantized_group group = quantize_group(x, bits);
    BOOST_REQUIRE_EQUAL(group.codes.size(), x.size());
    BOOST_TEST(*std::ranges::max_element(group.codes) <= (1 << bits) - 1);
    BOOST_TEST(group.scale < 0x7c00);  // +0 or positive and finite
    BOOST_TEST(group.zero != 0x8000);  // never -0
    BOOST_TEST(value(group.zero) == bounds_of(x).min);
  });
}

// scale = RN16(RN32(RN32(range) / R)): three roundings of relative size 2^-24, 2^-24, 2^-11 (or
// half a unit of 2^-24 absolute).
BOOST_AUTO_TEST_CASE(scale_is_the_rounded_step) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const double step = (bounds_of(x).max - bounds_of(x).min) / ((1 << bits) - 1);
    const double scale = value(quantize_group(x, bits).scale);
    const double tolerance = half_ulp(step) / 2 + step * 0x1p-23;
    BOOST_TEST(std::fabs(scale - step) <= tolerance);
  });
}

// Values are multiples of 2^-24 below 2^41, so differences are exact in double. The fp32
// subtraction and division err by 2^-24 each: a code is the nearest one, ties to even, unless the
// exact quotient is that close to a tie.
BOOST_AUTO_TEST_CASE(codes_are_nearest_to_the_stored_scale_and_zero) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const quantized_group group = quantize_group(x, bits);
    const double scale = value(group.scale);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = value(x[i]) - value(group.zero);
      if (scale == 0) {
        BOOST_TEST(group.codes[i] == 0);
        continue;
      }
      const double quotient = difference / scale;
      const double nearest = std::min(std::nearbyint(quotient), double((1 << bits) - 1));
      const double to_tie = std::fabs(quotient - std::floor(quotient) - 0.5);
      if (to_tie == 0 && difference == static_cast<float>(difference)) {
        BOOST_TEST(group.codes[i] == nearest);  // an exact tie stays one in fp32
      } else if (group.codes[i] != nearest) {
        BOOST_TEST(to_tie <= quotient * 0x1p-23);
      }
    }
  });
}

// Unlimited codes: |x - decoded| <= scale/2 plus the two fp32 roundings of the quotient. Limited
// codes: x - zero exceeds R * scale by at most R times the rounding error of the scale.
BOOST_AUTO_TEST_CASE(decoded_values_are_within_the_error_bound) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const quantized_group group = quantize_group(x, bits);
    const double scale = value(group.scale);
    const double max_code = (1 << bits) - 1;
    const double range = bounds_of(x).max - bounds_of(x).min;
    const double scale_error = half_ulp(range / max_code) / 2;
    const double bound = std::max(scale / 2, max_code * scale_error) + range * 0x1p-22;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double decoded = group.codes[i] * scale + value(group.zero);
      BOOST_TEST(std::fabs(value(x[i]) - decoded) <= bound);
    }
  });
}

BOOST_AUTO_TEST_CASE(codes_are_monotone_and_the_ends_are_reached) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const quantized_group group = quantize_group(x, bits);
    std::vector<std::size_t> order(x.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, [&](std::size_t i) { return value(x[i]); });
    BOOST_TEST(group.codes[order.front()] == 0);
    for (std::size_t i = 1; i < order.size(); ++i) {
      BOOST_TEST(group.codes[order[i - 1]] <= group.codes[order[i]]);
      if (value(x[order[i - 1]]) == value(x[order[i]])) {
        BOOST_TEST(group.codes[order[i - 1]] == group.codes[order[i]]);
      }
    }
    // A normal scale errs by 2^-11 relative, so the maximum's quotient is within R/2^11 < 1/2 of R.
    if (value(group.scale) >= 0x1p-14) {
      BOOST_TEST(group.codes[order.back()] == (1 << bits) - 1);
    }
  });
}

BOOST_AUTO_TEST_CASE(order_of_elements_does_not_matter) {
  for_each_group([](const std::vector<half_bits>& x, int bits) {
    const quantized_group group = quantize_group(x, bits);
    const quantized_group reversed =
        quantize_group(std::vector<half_bits>(x.rbegin(), x.rend()), bits);
    BOOST_TEST(group.scale == reversed.scale);
    BOOST_TEST(group.zero == reversed.zero);
    BOOST_TEST(std::equal(group.codes.begin(), group.codes.end(), reversed.codes.rbegin()));
  });
}

BOOST_AUTO_TEST_CASE(groups_of_one_element_decode_exactly_for_every_half) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const std::vector<half_bits> x = {static_cast<half_bits>(pattern)};
    for (const int bits : all_bits) {
      const quantized_group group = quantize_group(x, bits);
      const bool is_finite = (pattern & 0x7c00) != 0x7c00;
      const half_bits zero = pattern == 0x8000 ? half_bits{0} : x[0];
      if (group.codes[0] != 0 || group.scale != (is_finite ? 0 : 0x7fff) ||
          group.zero != (is_finite ? zero : half_bits{0x7fff})) {
        BOOST_ERROR(fmt::format("pattern {:04x}, {} bits: scale {:04x} zero {:04x} code {}",
                                pattern, bits, group.scale, group.zero, group.codes[0]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(constant_groups_decode_exactly) {
  // 0, -0, 0.01, -7, 65504, -65504, 2^-24, 100, -100
  for (const half_bits c : std::initializer_list<half_bits>{0x0000, 0x8000, 0x211f, 0xc700, 0x7bff,
                                                            0xfbff, 0x0001, 0x5640, 0xd640}) {
    for (const int bits : all_bits) {
      const quantized_group group = quantize_group(std::vector<half_bits>(32, c), bits);
      BOOST_TEST(group.scale == 0);
      BOOST_TEST(group.zero == (c == 0x8000 ? 0 : c));
      BOOST_TEST(std::ranges::count(group.codes, 0) == 32);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_nan_or_infinity_anywhere_makes_the_group_nan) {
  for (const half_bits special :
       std::initializer_list<half_bits>{0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7fff, 0xfe00}) {
    for (const int bits : all_bits) {
      for (std::size_t position = 0; position < 16; ++position) {
        std::vector<half_bits> x = seeded_values(position).normal_halves(16);
        x[position] = special;
        const quantized_group group = quantize_group(x, bits);
        BOOST_TEST(group.scale == 0x7fff);
        BOOST_TEST(group.zero == 0x7fff);
        BOOST_TEST(std::ranges::count(group.codes, 0) == 16);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_ramp_of_all_codes_is_stored_as_itself) {
  for (const int bits : all_bits) {
    std::vector<half_bits> ramp;
    for (int code = 0; code < 1 << bits; ++code) {
      ramp.push_back(float_to_half(static_cast<float>(code)));
    }
    const quantized_group group = quantize_group(ramp, bits);
    BOOST_TEST(group.scale == 0x3c00);
    for (int code = 0; code < 1 << bits; ++code) BOOST_TEST(group.codes[code] == code);
  }
}

BOOST_AUTO_TEST_CASE(other_widths_and_empty_groups_are_refused) {
  const std::vector<half_bits> x = {0x3c00, 0x4000};
  for (const int bits : {-2, 0, 1, 3, 5, 6, 7, 16}) {
    BOOST_CHECK_THROW(quantize_group(x, bits), spec::contract_error);
    BOOST_CHECK_THROW(quantize_group(x, bits, quantizer::minikv_released), spec::contract_error);
  }
  BOOST_CHECK_THROW(quantize_group({}, 2), spec::contract_error);
}

BOOST_AUTO_TEST_SUITE_END()
