// Demotion K8V4 -> K4V2: equal to the quantizer of section 2 on the exactly decoded group, for
// every scale and code; the vector of golden_vectors.md; modes, edges and refusals.
#include "reference/formats/demotion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "reference/formats/page_layout.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/formats/page_pool.hpp"
#include "tests/reference/formats/seeded_values.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::page_pool;
using tests::seeded_values;

namespace {

const spec::kv_format& high = spec::format_of(spec::format_id::k8v4);
const spec::kv_format& low = spec::format_of(spec::format_id::k4v2);

page_pool random_cache(std::uint64_t seed, int head_dim, std::int64_t tokens) {
  seeded_values random(seed);
  page_pool pool(high, head_dim, spec::pages_for_tokens(high, tokens));
  std::vector<half_bits> k = random.normal_halves(tokens * head_dim);
  std::vector<half_bits> v = random.normal_halves(tokens * head_dim);
  // Token 1 is constant, token 2 not finite, token 3 has a tiny range, token 4 the widest.
  for (int c = 0; c < head_dim && tokens > 4; ++c) {
    const auto at = [&](int token) { return static_cast<std::size_t>(token * head_dim + c); };
    k[at(1)] = v[at(1)] = 0xc400;
    k[at(3)] = v[at(3)] = static_cast<half_bits>(random.below(200));
    k[at(4)] = v[at(4)] = random.below(2) != 0 ? 0x7bff : 0xfbff;
  }
  if (tokens > 4)
    k[static_cast<std::size_t>(2 * head_dim)] = v[static_cast<std::size_t>(2 * head_dim + 5)] =
        0x7c00;
  append_tokens(high, head_dim, k, v, 0, pool.writable());
  return pool;
}

std::int64_t different_bytes(const page_pool& a, const page_pool& b) {
  std::int64_t n = 0;
  for (std::size_t p = 0; p < a.bytes.size(); ++p) {
    for (std::size_t i = 0; i < a.bytes[p].size(); ++i) n += a.bytes[p][i] != b.bytes[p][i];
  }
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(demotion)

// z = 0: zeros shift minimum and elements alike. Differences c * s are exact in fp32.
BOOST_AUTO_TEST_CASE(equals_the_quantizer_on_the_exact_decoded_group) {
  for (const auto& [from_bits, to_bits] : {std::pair{8, 4}, std::pair{4, 2}}) {
    const int top = (1 << from_bits) - 1, new_top = (1 << to_bits) - 1;
    std::int64_t groups = 0, differences = 0;
    // No group has a greater scale than the widest range, 131008.
    const half_bits largest = float_to_half(131008.0f / static_cast<float>(top));
    for (half_bits bits = static_cast<half_bits>(top + 1); bits <= largest; ++bits, ++groups) {
      const float s = half_to_float(bits);
      const float step = static_cast<float>(top) * s / static_cast<float>(new_top);
      const half_bits scale = float_to_half(step);
      differences += scale != demoted_scale(bits, from_bits, to_bits);
      for (int c = 0; c <= top; ++c) {
        const float quotient = static_cast<float>(c) * s / half_to_float(scale);
        const float limited = std::min(quotient, static_cast<float>(new_top));
        differences += std::nearbyint(limited) !=
                       demoted_code(static_cast<std::uint8_t>(c), from_bits, to_bits);
      }
    }
    BOOST_TEST(groups > 20000);
    BOOST_TEST(differences == 0, from_bits << " bits");
  }
}

BOOST_AUTO_TEST_CASE(codes_by_integers) {
  for (int c = 0; c < 256; ++c)
    BOOST_TEST(demoted_code(static_cast<std::uint8_t>(c), 8, 4) == (c + 8) / 17);
  for (int c = 0; c < 16; ++c)
    BOOST_TEST(demoted_code(static_cast<std::uint8_t>(c), 4, 2) == (c + 2) / 5);
}

BOOST_AUTO_TEST_CASE(decoded_values_stay_within_the_bound) {
  for (const int head_dim : {64, 128}) {
    const std::int64_t tokens = 70;
    const page_pool from = random_cache(3, head_dim, tokens);
    std::vector<std::int32_t> list(static_cast<std::size_t>(tokens));
    std::iota(list.begin(), list.end(), 0);
    page_pool to(low, head_dim, spec::pages_for_tokens(low, tokens));
    demote_tokens(head_dim, from.readable(), list, 0, to.writable(), demote_mode::append);
    const dequantized_tokens before = dequantize_tokens(high, head_dim, tokens, from.readable());
    const dequantized_tokens after = dequantize_tokens(low, head_dim, tokens, to.readable());
    const unpacked_tokens high_meta = unpack_tokens(high, head_dim, tokens, from.readable());
    const unpacked_tokens meta = unpack_tokens(low, head_dim, tokens, to.readable());
    const auto check = [&](const std::vector<double>& x, const std::vector<double>& y,
                           const std::vector<half_bits>& old_scales,
                           const std::vector<half_bits>& scales, double ratio, double top) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const double scale = half_to_float(scales[t]), old_scale = half_to_float(old_scales[t]);
        BOOST_TEST(std::isnan(scale) == (t == 2));
        if (t == 2) continue;
        const double bound = scale / 2 + top * std::fabs(scale - ratio * old_scale);
        for (int c = 0; c < head_dim; ++c)
          BOOST_TEST(std::fabs(x[t * head_dim + c] - y[t * head_dim + c]) <= bound);
      }
    };
    check(before.k, after.k, high_meta.key_scales, meta.key_scales, 17, 15);
    check(before.v, after.v, high_meta.value_scales, meta.value_scales, 5, 3);
  }
}

BOOST_AUTO_TEST_CASE(golden_vector) {
  std::ifstream file("reference/spec/golden_vectors.md");
  BOOST_REQUIRE_MESSAGE(
      file,
      "reference/spec/golden_vectors.md cannot be read; run the test in the source directory");
  const int head_dim = 128;
  const page_layout& layout = layout_of(high.id, head_dim);
  page_pool from(high, head_dim, 1, std::byte{0}), expected(low, head_dim, 1, std::byte{0});
  std::int32_t token = -1;
  int codes = 0, bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```demotion") inside = true;
    if (line == "```") inside = false;
    if (!inside) continue;
    std::istringstream words(line);
    std::string key, a, b;
    words >> key >> a >> b;
    const kv_side side = key.starts_with("key") ? kv_side::key : kv_side::value;
    if (key == "from") token = std::stoi(a);
    if (key == "key_scale" || key == "value_scale") {
      const scale_position at = layout.scale(side, token, 0);
      write_half(from.bytes[0], at.scale_byte,
                 static_cast<std::uint16_t>(std::stoul(a, nullptr, 16)));
      write_half(from.bytes[0], at.zero_byte,
                 static_cast<std::uint16_t>(std::stoul(b, nullptr, 16)));
    }
    if (key == "key" || key == "value") {
      const code_field at = layout.code(side, token, std::stoi(a));
      write_half(
          from.bytes[0], at.byte,
          static_cast<std::uint16_t>(read_half(from.bytes[0], at.byte) | std::stoul(b) << at.bit));
      ++codes;
    }
    if (key == "byte") {
      expected.bytes[0].at(std::stoul(a)) = static_cast<std::byte>(std::stoul(b, nullptr, 16));
      ++bytes;
    }
  }
  BOOST_REQUIRE(codes == 8);
  BOOST_REQUIRE(bytes == 11);
  page_pool to(low, head_dim, 1, std::byte{0xff});
  demote_tokens(head_dim, from.readable(), std::array{token}, 0, to.writable(),
                demote_mode::append);
  BOOST_TEST(different_bytes(to, expected) == 0);
}

BOOST_AUTO_TEST_CASE(cut_lists_write_the_same_bytes) {
  for (const int head_dim : {64, 128}) {
    const page_pool from = random_cache(5, head_dim, 200);
    seeded_values random(6);
    std::vector<std::int32_t> list(150);
    for (std::int32_t& t : list) t = static_cast<std::int32_t>(random.below(200));
    page_pool whole(low, head_dim, 3), pieces(low, head_dim, 3);
    demote_tokens(head_dim, from.readable(), list, 0, whole.writable(), demote_mode::append);
    for (std::size_t at = 0; at < list.size(); at += 7) {
      const auto piece = std::span(list).subspan(at, std::min<std::size_t>(7, list.size() - at));
      demote_tokens(head_dim, from.readable(), piece, static_cast<std::int64_t>(at),
                    pieces.writable(), demote_mode::append);
    }
    BOOST_TEST(different_bytes(whole, pieces) == 0);
  }
}

BOOST_AUTO_TEST_CASE(replace_changes_one_token_even_in_slot_0) {
  for (const int head_dim : {64, 128}) {
    const page_pool from = random_cache(7, head_dim, 128);
    std::vector<std::int32_t> list(128);
    std::iota(list.begin(), list.end(), 0);
    page_pool cache(low, head_dim, 2);
    demote_tokens(head_dim, from.readable(), list, 0, cache.writable(), demote_mode::append);
    for (const std::int64_t victim : {0, 17, 64}) {
      page_pool replaced = cache;
      demote_tokens(head_dim, from.readable(), std::array{100}, victim, replaced.writable(),
                    demote_mode::replace);
      std::vector<std::int32_t> expected_list = list;
      expected_list[static_cast<std::size_t>(victim)] = 100;
      page_pool expected(low, head_dim, 2);
      demote_tokens(head_dim, from.readable(), expected_list, 0, expected.writable(),
                    demote_mode::append);
      BOOST_TEST(different_bytes(replaced, expected) == 0);
      BOOST_TEST(different_bytes(replaced, cache) > 0);
    }
  }
}

// A page of the high tier has bytes behind its content; they are not read, and the page stays as it
// is.
BOOST_AUTO_TEST_CASE(bytes_behind_the_content_of_the_source_are_not_seen) {
  for (const int head_dim : {64, 128}) {
    page_pool from = random_cache(10, head_dim, 70);
    std::vector<std::int32_t> list(70);
    std::iota(list.rbegin(), list.rend(), 0);
    page_pool to(low, head_dim, 2), again(low, head_dim, 2);
    from.fill_unused(std::byte{0x00});
    demote_tokens(head_dim, from.readable(), list, 0, to.writable(), demote_mode::append);
    from.fill_unused(std::byte{0xff});
    const page_pool before = from;
    demote_tokens(head_dim, from.readable(), list, 0, again.writable(), demote_mode::append);
    BOOST_TEST(different_bytes(to, again) == 0);
    BOOST_TEST(different_bytes(from, before) == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_list_writes_nothing) {
  const page_pool from = random_cache(8, 128, 3);
  page_pool to(low, 128, 1), before(low, 128, 1);
  demote_tokens(128, from.readable(), {}, 0, to.writable(), demote_mode::append);
  BOOST_TEST(different_bytes(to, before) == 0);
}

BOOST_AUTO_TEST_CASE(tokens_outside_the_pages_are_refused) {
  const page_pool from = random_cache(9, 128, 64);
  page_pool to(low, 128, 1), wrong(low, 64, 1);
  const auto refused = [&](std::int32_t token, std::int64_t first, page_pool& pool) {
    BOOST_CHECK_THROW(demote_tokens(128, from.readable(), std::array{token}, first, pool.writable(),
                                    demote_mode::append),
                      spec::contract_error);
  };
  refused(64, 0, to);
  refused(-1, 0, to);
  refused(0, 64, to);
  refused(0, -1, to);
  refused(0, 0, wrong);
}

BOOST_AUTO_TEST_SUITE_END()
