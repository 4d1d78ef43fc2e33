#include <fmt/format.h>
#include <rapidcheck.h>

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

struct scheme {
  int bits;
  quantizer rule;
  // Half a unit of the stored scale, in units of fp16 at the exact step: one more for the rounding
  // of the step itself where a second one follows it.
  double scale_error;

  [[nodiscard]] int max_code() const { return (1 << bits) - 1; }
};

constexpr std::array contract_schemes = {
    scheme{2, quantizer::contract, 0.5}, scheme{4, quantizer::contract, 0.5},
    scheme{8, quantizer::contract, 0.5}, scheme{2, quantizer::contract_group16_key, 16.5}};

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

// Calls check(x, scheme) for groups of every regime, size and scheme; names the group on a failure.
template <typename Check>
void for_each_group(const Check& check) {
  for (std::size_t r = 0; r < regimes().size(); ++r) {
    for (const int size : {1, 2, 3, 16, 17, 64, 128}) {
      for (const scheme& by : contract_schemes) {
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
          seeded_values random(seed + 1000 * r + 100000 * static_cast<std::uint64_t>(size));
          std::vector<half_bits> x(static_cast<std::size_t>(size));
          for (half_bits& h : x) h = regimes()[r].draw(random);
          BOOST_TEST_CONTEXT("regime " << regimes()[r].name << " size " << size << " bits "
                                       << by.bits << " scale error " << by.scale_error << " seed "
                                       << seed) {
            check(x, by);
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
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const quantized_group group = quantize_group(x, by.bits, by.rule);
    BOOST_REQUIRE_EQUAL(group.codes.size(), x.size());
    BOOST_TEST(*std::ranges::max_element(group.codes) <= by.max_code());
    BOOST_TEST(group.scale < 0x7c00);  // +0 or positive and finite
    BOOST_TEST(group.zero != 0x8000);  // never -0
    BOOST_TEST(value(group.zero) == bounds_of(x).min);
  });
}

// scale = RN16(RN32(RN32(range) / R)): three roundings of relative size 2^-24, 2^-24, 2^-11 (or
// half a unit of 2^-24 absolute). Keys of int2_g16: one more, half a unit of 6 significant bits.
BOOST_AUTO_TEST_CASE(scale_is_the_rounded_step) {
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const double step = (bounds_of(x).max - bounds_of(x).min) / by.max_code();
    const double scale = value(quantize_group(x, by.bits, by.rule).scale);
    const double tolerance = by.scale_error * half_ulp(step) + step * 0x1p-23;
    BOOST_TEST(std::fabs(scale - step) <= tolerance);
  });
}

// Values are multiples of 2^-24 below 2^41, so differences are exact in double. The fp32
// subtraction and division err by 2^-24 each: a code is the nearest one, ties to even, unless the
// exact quotient is that close to a tie.
BOOST_AUTO_TEST_CASE(codes_are_nearest_to_the_stored_scale_and_zero) {
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const quantized_group group = quantize_group(x, by.bits, by.rule);
    const double scale = value(group.scale);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = value(x[i]) - value(group.zero);
      if (scale == 0) {
        BOOST_TEST(group.codes[i] == 0);
        continue;
      }
      const double quotient = difference / scale;
      const double nearest = std::min(std::nearbyint(quotient), static_cast<double>(by.max_code()));
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
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const quantized_group group = quantize_group(x, by.bits, by.rule);
    const double scale = value(group.scale);
    const double max_code = by.max_code();
    const double range = bounds_of(x).max - bounds_of(x).min;
    const double scale_error = by.scale_error * half_ulp(range / max_code);
    const double bound = std::max(scale / 2, max_code * scale_error) + range * 0x1p-22;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double decoded = group.codes[i] * scale + value(group.zero);
      BOOST_TEST(std::fabs(value(x[i]) - decoded) <= bound);
    }
  });
}

BOOST_AUTO_TEST_CASE(codes_are_monotone_and_the_ends_are_reached) {
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const quantized_group group = quantize_group(x, by.bits, by.rule);
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
    // A normal scale errs by 2^-11 relative, that of a key by less than 1/60, so the maximum's
    // quotient is within R/2^11 or R/60 of R, less than 1/2.
    if (value(group.scale) >= 0x1p-14) {
      BOOST_TEST(group.codes[order.back()] == by.max_code());
    }
  });
}

BOOST_AUTO_TEST_CASE(order_of_elements_does_not_matter) {
  for_each_group([](const std::vector<half_bits>& x, const scheme& by) {
    const quantized_group group = quantize_group(x, by.bits, by.rule);
    const quantized_group reversed =
        quantize_group(std::vector<half_bits>(x.rbegin(), x.rend()), by.bits, by.rule);
    BOOST_TEST(group.scale == reversed.scale);
    BOOST_TEST(group.zero == reversed.zero);
    BOOST_TEST(std::equal(group.codes.begin(), group.codes.end(), reversed.codes.rbegin()));
  });
}

BOOST_AUTO_TEST_CASE(groups_of_one_element_decode_exactly_for_every_half) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const std::vector<half_bits> x = {static_cast<half_bits>(pattern)};
    for (const scheme& by : contract_schemes) {
      const quantized_group group = quantize_group(x, by.bits, by.rule);
      const bool is_finite = (pattern & 0x7c00) != 0x7c00;
      const half_bits zero = pattern == 0x8000 ? half_bits{0} : x[0];
      if (group.codes[0] != 0 || group.scale != (is_finite ? 0 : 0x7fff) ||
          group.zero != (is_finite ? zero : half_bits{0x7fff})) {
        BOOST_ERROR(fmt::format("pattern {:04x}, {} bits: scale {:04x} zero {:04x} code {}",
                                pattern, by.bits, group.scale, group.zero, group.codes[0]));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(constant_groups_decode_exactly) {
  // 0, -0, 0.01, -7, 65504, -65504, 2^-24, 100, -100
  for (const half_bits c : std::initializer_list<half_bits>{0x0000, 0x8000, 0x211f, 0xc700, 0x7bff,
                                                            0xfbff, 0x0001, 0x5640, 0xd640}) {
    for (const scheme& by : contract_schemes) {
      const quantized_group group = quantize_group(std::vector<half_bits>(32, c), by.bits, by.rule);
      BOOST_TEST(group.scale == 0);
      BOOST_TEST(group.zero == (c == 0x8000 ? 0 : c));
      BOOST_TEST(std::ranges::count(group.codes, 0) == 32);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_nan_or_infinity_anywhere_makes_the_group_nan) {
  for (const half_bits special :
       std::initializer_list<half_bits>{0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7fff, 0xfe00}) {
    for (const scheme& by : contract_schemes) {
      for (std::size_t position = 0; position < 16; ++position) {
        std::vector<half_bits> x = seeded_values(position).normal_halves(16);
        x[position] = special;
        const quantized_group group = quantize_group(x, by.bits, by.rule);
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

// The nearest number of 6 significant bits, ties to even, in units of at least 2^-19.
double nearest_of_6_bits(double x) {
  if (x == 0) return 0;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x) - 5, -19));
  return std::nearbyint(x / unit) * unit;
}

// -s and 2 s have the step s exactly: every fp16 step up to 32752, subnormal ones included.
BOOST_AUTO_TEST_CASE(every_key_scale_is_the_nearest_one_of_6_bits) {
  std::size_t ties = 0, lost = 0;
  for (half_bits u = 0; u <= 0x77ff; ++u) {
    const std::vector<half_bits> x = {static_cast<half_bits>(u | 0x8000),
                                      float_to_half(2 * half_to_float(u)), u};
    const quantized_group group = quantize_group(x, 2, quantizer::contract_group16_key);
    const double scale = nearest_of_6_bits(value(u));
    ties += (u & 31) == 16;
    lost += scale == 0;
    const auto code = [&](double quotient) {
      return scale == 0 ? 0 : static_cast<int>(std::min(std::nearbyint(quotient / scale), 3.0));
    };
    if (value(group.scale) != scale || group.codes[0] != 0 ||
        group.codes[1] != code(3 * value(u)) || group.codes[2] != code(2 * value(u)) ||
        quantize_group(x, 2).scale != u) {
      BOOST_ERROR(fmt::format("step {:04x}: scale {:04x}, codes {} {} {}", u, group.scale,
                              group.codes[0], group.codes[1], group.codes[2]));
    }
  }
  BOOST_TEST(ties == 960);
  BOOST_TEST(lost == 17);  // 0 to 16 units of 2^-24
}

// Any group: the scale of a key has 6 significant bits and is the 11-bit one to within 1/64
// (normal) or 2^-20 (subnormal); the zero is the same, and no code exceeds 3.
BOOST_AUTO_TEST_CASE(key_scales_are_short_and_near_the_others) {
  const auto property = [] {
    const auto size = *rc::gen::inRange<std::size_t>(1, 40);
    const auto top = *rc::gen::element(0x40, 0x100, 0x400, 0x3c00, 0x7c00);  // of the magnitude
    const auto pattern = rc::gen::map(
        rc::gen::pair(rc::gen::inRange(0, top), rc::gen::inRange(0, 2)),
        [](std::pair<int, int> p) { return static_cast<half_bits>(p.first | p.second << 15); });
    const auto x = *rc::gen::container<std::vector<half_bits>>(size, pattern);
    const quantized_group key = quantize_group(x, 2, quantizer::contract_group16_key);
    const quantized_group other = quantize_group(x, 2);
    const double short_scale = value(key.scale), scale = value(other.scale);
    RC_CLASSIFY(scale < 0x1p-14 && short_scale < scale, "a subnormal scale rounded down");
    RC_CLASSIFY(short_scale == 0 && scale > 0, "a scale rounded to 0");
    RC_CLASSIFY(scale >= 0x1p-14, "a normal scale");
    RC_ASSERT((key.scale & 31) == 0);
    RC_ASSERT(key.scale < 0x7c00);
    RC_ASSERT(key.zero == other.zero);
    RC_ASSERT(std::fabs(short_scale - scale) <= std::max(scale / 64, 0x1p-20));
    RC_ASSERT(short_scale == nearest_of_6_bits(scale));
    RC_ASSERT(*std::ranges::max_element(key.codes) <= 3);
    if (short_scale == 0) RC_ASSERT(std::ranges::count(key.codes, 0) == std::ssize(x));
  };
  BOOST_TEST(rc::check("key scales", property));
}

BOOST_AUTO_TEST_CASE(other_widths_and_empty_groups_are_refused) {
  const std::vector<half_bits> x = {0x3c00, 0x4000};
  for (const int bits : {-2, 0, 1, 3, 5, 6, 7, 16}) {
    BOOST_CHECK_THROW(quantize_group(x, bits), spec::contract_error);
    BOOST_CHECK_THROW(quantize_group(x, bits, quantizer::minikv_released), spec::contract_error);
    BOOST_CHECK_THROW(quantize_group(x, bits, quantizer::contract_group16_key),
                      spec::contract_error);
  }
  BOOST_CHECK_THROW(quantize_group({}, 2), spec::contract_error);
}

BOOST_AUTO_TEST_SUITE_END()
