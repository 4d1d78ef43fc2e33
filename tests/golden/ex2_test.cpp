// ex2.approx.ftz.f32 as recorded on an H200 against its model: 65,536 outputs one by one, and eight
// slices of 2^24 inputs by their fingerprints.
#include "reference/numerics/ex2.hpp"

#include <fmt/format.h>

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>

#include "tests/golden/golden_directory.hpp"
#include "tests/golden/golden_file.hpp"
#include "tests/golden/golden_inputs.hpp"

namespace {

using namespace kvproof::golden;

std::uint32_t model(std::uint32_t input) {
  return std::bit_cast<std::uint32_t>(kvproof::reference::ex2_approx(std::bit_cast<float>(input)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(recorded_outputs) {
  const auto golden = read_golden_file<std::uint32_t>(golden_directory() + "/ex2.bin");
  BOOST_REQUIRE_EQUAL(golden.seed, recorded_seed);
  BOOST_REQUIRE_EQUAL(golden.sections, num_ex2_classes);
  BOOST_REQUIRE_EQUAL(golden.words_per_section, inputs_per_ex2_class);
  for (int ex2_class = 0; ex2_class < num_ex2_classes; ++ex2_class) {
    std::int64_t mismatches = 0;
    std::string first;
    for (int i = 0; i < inputs_per_ex2_class; ++i) {
      const std::uint32_t input = ex2_input(ex2_class, i);
      const std::uint32_t expected = golden.at(ex2_class, i);
      if (model(input) == expected || mismatches++ != 0) continue;
      first = fmt::format("input {:#010x}: hardware {:#010x}, model {:#010x}", input, expected,
                          model(input));
    }
    BOOST_TEST(mismatches == 0,
               fmt::format("class {}: {} mismatches, first {}", ex2_class, mismatches, first));
  }
}

// By the upper 8 bits of the input: subnormal and tiny, [0.5, 2), [32, 128), [128, 512), infinity
// and NaN, (-2, -0.5], (-32, -8], (-128, -32].
BOOST_AUTO_TEST_CASE(slices_of_all_inputs) {
  const auto golden = read_golden_file<std::uint64_t>(golden_directory() + "/ex2_slices.bin");
  BOOST_REQUIRE_EQUAL(golden.words_per_section, num_ex2_slices);
  for (const std::uint32_t slice : {0x00u, 0x3fu, 0x42u, 0x43u, 0x7fu, 0xbfu, 0xc1u, 0xc2u}) {
    const std::uint32_t begin = slice * inputs_per_ex2_slice;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < inputs_per_ex2_slice; ++i) {
      sum += ex2_fingerprint(begin + i, model(begin + i));
    }
    BOOST_TEST(sum == golden.at(0, slice),
               fmt::format("inputs from {:#010x}: hardware {:#018x}, model {:#018x}", begin,
                           golden.at(0, slice), sum));
  }
}
