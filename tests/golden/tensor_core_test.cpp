// mma.sync and wgmma as recorded on an H200 against both forms of the tensor-core model, every bit.
#include "reference/numerics/tensor_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/golden/golden_directory.hpp"
#include "tests/golden/golden_file.hpp"
#include "tests/golden/golden_inputs.hpp"

namespace {

using namespace kvproof::golden;
using namespace kvproof::reference;

constexpr architecture arch = architecture::sm_90;

operand_type type_of(const matrix_kind& kind) {
  return kind.bf16 ? operand_type::bf16 : operand_type::fp16;
}

golden_file<std::uint32_t> recorded_outputs(const matrix_kind& kind) {
  auto file =
      read_golden_file<std::uint32_t>(fmt::format("{}/{}.bin", golden_directory(), kind.name));
  BOOST_REQUIRE_EQUAL(file.seed, recorded_seed);
  BOOST_REQUIRE_EQUAL(file.sections, num_distributions);
  BOOST_REQUIRE_EQUAL(file.words_per_section, outputs_per_distribution);
  return file;
}

std::vector<float> addends(const matrix_tile& t) {
  std::vector<float> c(t.c.size());
  std::transform(t.c.begin(), t.c.end(), c.begin(),
                 [](std::uint32_t bits) { return std::bit_cast<float>(bits); });
  return c;
}

std::vector<float> by_dot(const matrix_kind& kind, const matrix_tile& t) {
  std::vector<float> d = addends(t);
  for (std::size_t i = 0; i < d.size(); ++i) {
    d[i] = mma_dot(std::span(t.a).subspan(i / columns * kind.depth, kind.depth),
                   std::span(t.b).subspan(i % columns * kind.depth, kind.depth), d[i], arch,
                   type_of(kind));
  }
  return d;
}

// mma_matrix takes k16 steps: m16n8k8 is padded with zeros, which take no part.
std::vector<float> by_matrix(const matrix_kind& kind, const matrix_tile& t) {
  const int depth = std::max(kind.depth, 16);
  std::vector<std::uint16_t> a(static_cast<std::size_t>(kind.rows) * depth);
  std::vector<std::uint16_t> b(static_cast<std::size_t>(depth) * columns);
  for (int k = 0; k < kind.depth; ++k) {
    for (int m = 0; m < kind.rows; ++m) a[m * depth + k] = t.a[m * kind.depth + k];
    for (int n = 0; n < columns; ++n) b[k * columns + n] = t.b[n * kind.depth + k];
  }
  std::vector<float> d = addends(t);
  mma_matrix(d, a, b, arch, type_of(kind));
  return d;
}

using model = std::vector<float> (*)(const matrix_kind&, const matrix_tile&);

void compare_kind(std::size_t kind_idx, const char* model_name, model compute) {
  const matrix_kind& kind = matrix_kinds[kind_idx];
  const golden_file<std::uint32_t> golden = recorded_outputs(kind);
  const int outputs_per_tile = kind.rows * columns;
  for (int d = 0; d < num_distributions; ++d) {
    std::int64_t mismatches = 0;
    std::string first;
    for (int tile = 0; tile < num_tiles(kind); ++tile) {
      const std::vector<float> out =
          compute(kind, make_tile(kind_idx, static_cast<distribution>(d), tile));
      for (int i = 0; i < outputs_per_tile; ++i) {
        const std::uint32_t expected = golden.at(d, tile * outputs_per_tile + i);
        const auto actual = std::bit_cast<std::uint32_t>(out[i]);
        if (actual == expected) continue;
        if (mismatches++ == 0) {
          first = fmt::format("tile {} row {} column {}: hardware {:#010x}, model {:#010x}", tile,
                              i / columns, i % columns, expected, actual);
        }
      }
    }
    BOOST_TEST(mismatches == 0, fmt::format("{} distribution {} by {}: {} mismatches, first {}",
                                            kind.name, d, model_name, mismatches, first));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(mma_dot_reproduces_the_hardware) {
  for (std::size_t kind = 0; kind < matrix_kinds.size(); ++kind) {
    compare_kind(kind, "mma_dot", by_dot);
  }
}

BOOST_AUTO_TEST_CASE(mma_matrix_reproduces_the_hardware) {
  for (std::size_t kind = 0; kind < matrix_kinds.size(); ++kind) {
    compare_kind(kind, "mma_matrix", by_matrix);
  }
}

// The inputs reach what they are meant to reach: else equality above would say little.
BOOST_AUTO_TEST_CASE(recorded_outputs_cover_every_class) {
  std::int64_t zeros = 0, negative_zeros = 0, subnormals = 0, infinities = 0, nans = 0, sm_80 = 0;
  for (std::size_t kind_idx = 0; kind_idx < matrix_kinds.size(); ++kind_idx) {
    const matrix_kind& kind = matrix_kinds[kind_idx];
    const golden_file<std::uint32_t> golden = recorded_outputs(kind);
    for (const std::uint32_t word : golden.words) {
      const std::uint32_t magnitude = word & 0x7fffffffu;
      zeros += word == 0 ? 1 : 0;
      negative_zeros += word == 0x80000000u ? 1 : 0;
      subnormals += magnitude > 0 && magnitude < 0x00800000u ? 1 : 0;
      infinities += magnitude == 0x7f800000u ? 1 : 0;
      nans += magnitude > 0x7f800000u ? 1 : 0;
    }
    const matrix_tile t = make_tile(kind_idx, distribution::normal, 0);
    for (int i = 0; i < kind.rows * columns; ++i) {
      const float other = mma_dot(std::span(t.a).subspan(i / columns * kind.depth, kind.depth),
                                  std::span(t.b).subspan(i % columns * kind.depth, kind.depth),
                                  std::bit_cast<float>(t.c[i]), architecture::sm_80, type_of(kind));
      const auto normal = static_cast<int>(distribution::normal);
      sm_80 += std::bit_cast<std::uint32_t>(other) != golden.at(normal, i) ? 1 : 0;
    }
  }
  BOOST_TEST(zeros > 100);
  BOOST_TEST(negative_zeros == 0);  // sm_90 never gives -0
  BOOST_TEST(subnormals > 100);
  BOOST_TEST(infinities > 100);
  BOOST_TEST(nans > 100);
  BOOST_TEST(sm_80 > 0);  // the other architecture's model is refuted
}

BOOST_AUTO_TEST_CASE(provenance_names_the_device) {
  std::ifstream in(golden_directory() + "/golden.json");
  BOOST_REQUIRE_MESSAGE(in.good(), "golden.json is missing");
  const nlohmann::json facts = nlohmann::json::parse(in);
  BOOST_TEST(facts.at("schema").get<std::string>() == "kvproof-golden-1");
  BOOST_TEST(facts.at("compute_capability").get<int>() == 90);
  BOOST_TEST(facts.at("seed").get<std::uint64_t>() == recorded_seed);
  BOOST_TEST(!facts.at("device").get<std::string>().empty());
  BOOST_TEST(facts.at("files").size() == matrix_kinds.size() + 2);
}
