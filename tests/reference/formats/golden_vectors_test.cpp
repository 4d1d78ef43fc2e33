// The vectors of reference/spec/golden_vectors.md and minikv_released.md, read from the pages.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <string>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "tests/reference/formats/golden_blocks.hpp"
#include "tests/reference/formats/page_pool.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using namespace kvproof::tests;

namespace {

void check_codes(const fenced_block& block, const std::vector<std::uint8_t>& codes) {
  const line_words expected = values_of(block, "codes");
  BOOST_REQUIRE_EQUAL(codes.size(), expected.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    BOOST_TEST(int{codes[i]} == std::stoi(expected[i]), "element " << i);
  }
}

// The intermediate values that the page states, by plain fp32 operations.
void check_steps(const fenced_block& block) {
  const std::vector<half_bits> x = halves_of(block, "x");
  const float max_code = static_cast<float>((1 << std::stoi(values_of(block, "bits").at(0))) - 1);
  const float zero = half_to_float(halves_of(block, "min").at(0));
  const float max = half_to_float(halves_of(block, "max").at(0));
  BOOST_TEST(zero == half_to_float(*std::ranges::min_element(x, {}, half_to_float)));
  BOOST_TEST(max == half_to_float(*std::ranges::max_element(x, {}, half_to_float)));
  const float range = max - zero;
  BOOST_TEST(bits_of(range) == hex(values_of(block, "range").at(0)));
  const float step = range / max_code;
  BOOST_TEST(bits_of(step) == hex(values_of(block, "step").at(0)));
  const bool is_rounded = !values_of(block, "step16").empty();
  BOOST_TEST(float_to_half(step) == halves_of(block, is_rounded ? "step16" : "scale").at(0));
  const line_words quotients = values_of(block, "quotients");
  const float scale = half_to_float(halves_of(block, "scale").at(0));
  BOOST_TEST(quotients.size() == (scale == 0 ? 0 : x.size()));
  for (std::size_t i = 0; i < quotients.size(); ++i) {
    BOOST_TEST(bits_of((half_to_float(x[i]) - zero) / scale) == hex(quotients[i]));
  }
}

quantized_group check_group(const fenced_block& block, quantizer rule) {
  const int bits = std::stoi(values_of(block, "bits").at(0));
  quantized_group group = quantize_group(halves_of(block, "x"), bits, rule);
  BOOST_TEST(group.scale == halves_of(block, "scale").at(0));
  BOOST_TEST(group.zero == halves_of(block, "zero").at(0));
  if (!values_of(block, "codes").empty()) check_codes(block, group.codes);
  return group;
}

const spec::kv_format& format_named(const std::string& name) {
  const auto format = std::ranges::find(spec::kv_formats, name, &spec::kv_format::name);
  BOOST_REQUIRE(format != spec::kv_formats.end());
  return *format;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(golden)

BOOST_AUTO_TEST_CASE(groups) {
  const auto blocks = read_blocks("reference/spec/golden_vectors.md", "group");
  BOOST_TEST(blocks.size() >= 32);
  for (const fenced_block& block : blocks) {
    BOOST_TEST_CONTEXT(values_of(block, "name").at(0)) {
      const bool key_rule = values_of(block, "rule") == line_words{"group16_key"};
      BOOST_TEST(key_rule == !values_of(block, "step16").empty());
      check_group(block, key_rule ? quantizer::contract_group16_key : quantizer::contract);
      if (!values_of(block, "range").empty()) check_steps(block);
    }
  }
}

BOOST_AUTO_TEST_CASE(pages) {
  const auto blocks = read_blocks("reference/spec/golden_vectors.md", "page");
  BOOST_TEST(blocks.size() >= 8);
  for (const fenced_block& block : blocks) {
    BOOST_TEST_CONTEXT(values_of(block, "name").at(0)) {
      const spec::kv_format& format = format_named(values_of(block, "format").at(0));
      const int head_dim = std::stoi(values_of(block, "head_dim").at(0));
      const std::int64_t tokens = std::stoll(values_of(block, "tokens").at(0));
      std::map<std::string, std::vector<half_bits>> rows;
      rows["k"].resize(static_cast<std::size_t>(tokens * head_dim));
      rows["v"].resize(rows["k"].size());
      tests::page_pool expected(format, head_dim, spec::pages_for_tokens(format, tokens),
                                std::byte{0});
      for (const line_words& line : block) {
        if (line[0] == "k" || line[0] == "v") {
          rows[line[0]].at(std::stoul(line[1]) * head_dim + std::stoul(line[2])) =
              static_cast<half_bits>(hex(line[3]));
        } else if (line[0] == "byte") {
          expected.bytes.at(std::stoul(line[1])).at(std::stoul(line[2])) =
              static_cast<std::byte>(hex(line[3]));
        }
      }
      tests::page_pool written(format, head_dim, spec::pages_for_tokens(format, tokens),
                               std::byte{0xff});
      append_tokens(format, head_dim, rows["k"], rows["v"], 0, written.writable());
      for (std::size_t p = 0; p < written.bytes.size(); ++p) {
        for (std::size_t i = 0; i < written.bytes[p].size(); ++i) {
          // Behind the content the page keeps what it held.
          const std::byte byte = i < written.content_bytes ? expected.bytes[p][i] : std::byte{0xff};
          if (written.bytes[p][i] != byte) {
            BOOST_ERROR(fmt::format("page {} byte {}: {:02x}, expected {:02x}", p, i,
                                    std::to_integer<int>(written.bytes[p][i]),
                                    std::to_integer<int>(byte)));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(released_groups) {
  const auto blocks = read_blocks("reference/spec/minikv_released.md", "released");
  BOOST_TEST(blocks.size() >= 15);
  for (const fenced_block& block : blocks) {
    BOOST_TEST_CONTEXT(values_of(block, "name").at(0)) {
      const quantized_group group = check_group(block, quantizer::minikv_released);
      const line_words word = values_of(block, "word");
      if (word.empty()) continue;
      std::uint32_t packed = 0;
      for (std::size_t i = 0; i < 16; ++i) packed |= std::uint32_t{group.codes.at(i)} << 2 * i;
      BOOST_TEST(packed == hex(word[0]));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
