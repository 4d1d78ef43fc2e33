// The kernels' division by fma equals true division: exhaustively at every boundary between two
// codes, for every scale; the argument why that is enough is in quantize_arithmetic.hpp.
#include "gpu/kernels/quantize_arithmetic.hpp"

#include <fmt/format.h>

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "reference/numerics/half.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::gpu {
namespace {

struct host_ops {
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float mul(float a, float b) { return a * b; }
  static std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
  static float from_bits(std::uint32_t x) { return std::bit_cast<float>(x); }
};

constexpr std::uint32_t largest_half = 0x7bff;
constexpr float infinity = std::numeric_limits<float>::infinity();

int code_by_fma(float d, reciprocal by) {
  const float shifted = quotient<host_ops>(d, by) + rounding_shift;
  return static_cast<int>(host_ops::bits(shifted) - host_ops::bits(rounding_shift));
}
int code_by_division(float d, float s) { return static_cast<int>(std::nearbyint(d / s)); }

BOOST_AUTO_TEST_CASE(codes_at_every_boundary_of_every_scale) {
  std::int64_t checks = 0, differences = 0;
  for (std::uint32_t bits = 1; bits <= largest_half; ++bits) {
    const float s = reference::half_to_float(static_cast<std::uint16_t>(bits));
    const reciprocal by = reciprocal_of<host_ops>(s);
    differences += code_by_fma(0.0f, by) != 0;
    for (int k = 0; k < 255; ++k) {
      const float h = static_cast<float>(k) + 0.5f, tie = h * s;
      BOOST_REQUIRE(double{tie} == double{h} * double{s});
      const int even = k + k % 2;
      const float below = std::nextafter(tie, 0.0f), above = std::nextafter(tie, infinity);
      // What true division gives, so that the argument itself is checked too.
      differences += code_by_division(below, s) != k;
      differences += code_by_division(tie, s) != even;
      differences += code_by_division(above, s) != k + 1;
      differences += code_by_fma(below, by) != k;
      differences += code_by_fma(tie, by) != even;
      differences += code_by_fma(above, by) != k + 1;
      checks += 6;
    }
  }
  BOOST_TEST(differences == 0);
  BOOST_TEST(checks == 31743ll * 255 * 6);
}

BOOST_AUTO_TEST_CASE(codes_of_random_differences_of_halves) {
  tests::seeded_values random(17);
  std::int64_t differences = 0;
  for (int i = 0; i < 20'000'000; ++i) {
    const float a = reference::half_to_float(random.finite_half());
    const float b = reference::half_to_float(random.finite_half());
    const float d = std::max(a, b) - std::min(a, b);
    // A scale for which d is within the levels, and one that makes d a code near the top.
    const float step = d / static_cast<float>(1 + random.below(255));
    const float s = reference::half_to_float(reference::float_to_half(step));
    if (s == 0.0f || !std::isfinite(s)) continue;
    differences += code_by_fma(d, reciprocal_of<host_ops>(s)) != code_by_division(d, s);
  }
  BOOST_TEST(differences == 0);
}

template <int Levels>
void check_steps() {
  std::int64_t differences = step_of<Levels, host_ops>(0.0f) != 0.0f;
  // Both sides scale exactly by powers of two (no quotient is below 2^-32): one binade is enough.
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float range = host_ops::from_bits(0x3f800000u + mantissa);
    differences += host_ops::bits(step_of<Levels, host_ops>(range)) !=
                   host_ops::bits(range / static_cast<float>(Levels));
  }
  // And a stride through all binades that occur.
  for (std::uint32_t bits = host_ops::bits(0x1p-24f); bits <= host_ops::bits(0x1p17f);
       bits += 997) {
    const float range = host_ops::from_bits(bits);
    differences += host_ops::bits(step_of<Levels, host_ops>(range)) !=
                   host_ops::bits(range / static_cast<float>(Levels));
  }
  BOOST_TEST(differences == 0, Levels << " levels");
}
BOOST_AUTO_TEST_CASE(steps_equal_true_division) {
  check_steps<3>();
  check_steps<15>();
  check_steps<255>();
}

// Kernels limit a quotient to R only where the scale is at most R units of 2^-24. Elsewhere the
// largest range that rounds to the scale still has the code R.
BOOST_AUTO_TEST_CASE(only_tiny_scales_need_the_limit) {
  for (const int levels : {3, 15, 255}) {
    std::int64_t above = 0, limited = 0;
    const float top = 131008.0f;
    const auto scale_of = [&](float range) {
      return reference::float_to_half(range / static_cast<float>(levels));
    };
    for (std::uint32_t bits = 1; bits <= scale_of(top); ++bits) {
      std::uint32_t low = 0, high = host_ops::bits(top);  // the largest range with this scale
      while (low < high) {
        const std::uint32_t middle = (low + high + 1) / 2;
        if (scale_of(host_ops::from_bits(middle)) <= bits) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      const float s = reference::half_to_float(static_cast<std::uint16_t>(bits));
      const bool over = code_by_division(host_ops::from_bits(low), s) > levels;
      if (bits > static_cast<std::uint32_t>(levels)) {
        above += over;
      } else {
        limited += over;
      }
    }
    BOOST_TEST(above == 0, levels);
    BOOST_TEST(limited > 0, levels);
  }
}

}  // namespace
}  // namespace kvproof::gpu
