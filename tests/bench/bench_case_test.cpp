// The matrix of benchmarks: names are ids that compare.py matches results by, costs are what the
// counters are formed from.
#include "bench/bench_case.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>
#include <string>

#include "traces/synthetic_trace.hpp"

namespace kvproof::bench {
namespace {

constexpr std::int64_t l2_bytes = 60 << 20;

std::set<std::string> names_of(const std::vector<bench_case>& cases) {
  std::set<std::string> names;
  for (const bench_case& c : cases) names.insert(c.name());
  return names;
}

bench_case decode_case(spec::format_id format, const model_shape& model, int batch,
                       std::int64_t tokens, bool scores) {
  bench_case c{operation::decode, format, model, batch};
  c.tokens = tokens;
  c.scores = scores;
  return c;
}

BOOST_AUTO_TEST_CASE(names_are_unique_and_the_matrix_is_whole) {
  const std::vector<bench_case> cases = gpu_cases();
  const std::set<std::string> names = names_of(cases);
  BOOST_TEST(names.size() == cases.size());
  // (decode with and without scores, quantize, gather) x 3 formats, demote, score update; 4 models
  // x 3 x 3. Decode of tiers: without scores. Decode with significance: 2 formats and tiers. Mixed
  // lengths: 3 formats and tiers, ragged and equal.
  BOOST_TEST(cases.size() == (4 * 3 + 2 + 1 + 3) * 36 + 4 * 2);
  for (const char* name :
       {"decode/k4v2/llama3-8b/batch:64/tokens:16384",
        "decode/int2_g16/smollm2-135m/batch:1/tokens:4096/scores",
        "decode/k4v2/llama3-8b/ragged/batch:64", "decode/k8v4/llama3-8b/equal/batch:64",
        "decode/tiers/llama3-8b/batch:64/tokens:16384",
        "decode/tiers/smollm2-135m/batch:8/tokens:65536/significance",
        "decode/tiers/llama3-8b/ragged/batch:64", "decode/tiers/llama3-8b/equal/batch:64",
        "quantize_pack/int2_g16/qwen2.5-7b/batch:8/tokens:65536",
        "gather_quantize/k8v4/llama2-7b/batch:64/tokens:4096",
        "demote/k8v4_k4v2/llama3-8b/batch:8/tokens:16384"}) {
    BOOST_TEST(names.contains(name), name);
  }
  BOOST_TEST(names_of(emulator_cases()).size() == emulator_cases().size());
}

BOOST_AUTO_TEST_CASE(models_are_those_of_the_traces) {
  for (const model_shape& model : models) {
    const traces::model_facts facts = traces::model_preset(std::string(model.name));
    BOOST_TEST(model.q_heads == facts.query_heads);
    BOOST_TEST(model.kv_heads == facts.kv_heads);
    BOOST_TEST(model.head_dim == facts.head_dim);
    BOOST_TEST(model.q_heads % model.kv_heads == 0);
  }
}

BOOST_AUTO_TEST_CASE(ragged_and_equal_lengths_hold_the_same_tokens) {
  bench_case c{operation::decode, spec::format_id::k4v2, models[0], 64, length_mix::ragged};
  const std::vector<std::int64_t> ragged = lengths_of(c);
  BOOST_TEST(ragged == lengths_of(c));
  const case_costs ragged_costs = costs_of(c, l2_bytes);
  c.mix = length_mix::equal;
  const std::vector<std::int64_t> equal = lengths_of(c);

  BOOST_TEST(ragged.size() == 64u);
  BOOST_TEST(equal.size() == 64u);
  BOOST_TEST(std::accumulate(ragged.begin(), ragged.end(), std::int64_t{0}) ==
             std::accumulate(equal.begin(), equal.end(), std::int64_t{0}));
  BOOST_TEST(std::set(equal.begin(), equal.end()).size() == 1u);
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == ragged_costs.moved_bytes);
  BOOST_TEST(std::count(ragged.begin(), ragged.end(), 131072) == 1);
  for (const std::int64_t n : ragged) {
    BOOST_TEST(n % 16 == 0);
    BOOST_TEST(n >= 100);
    BOOST_TEST((n <= 32768 || n == 131072));
  }
  // Log-uniform: as many below the geometric mean (1810) as above, give or take.
  const auto below = std::count_if(ragged.begin(), ragged.end(), [](auto n) { return n < 1810; });
  BOOST_TEST((below > 20 && below < 44), below << " of 64 lengths are below the middle");
}

BOOST_AUTO_TEST_CASE(costs_count_each_byte_once) {
  // 64 sequences of 8 KV heads, 16384 tokens of 104 bytes; q, out, m and l of 32 query heads.
  const std::int64_t cache = std::int64_t{64} * 8 * 16384 * 104;
  const std::int64_t rows = std::int64_t{64} * 32 * (128 * 2 + 128 * 4 + 8);
  const bench_case plain = decode_case(spec::format_id::k4v2, models[0], 64, 16384, false);
  BOOST_TEST(costs_of(plain, l2_bytes).moved_bytes == cache + rows);
  BOOST_TEST(costs_of(plain, l2_bytes).tokens == 64 * 16384);
  BOOST_TEST(costs_of(plain, l2_bytes).copies == 1);
  const bench_case scored = decode_case(spec::format_id::k4v2, models[0], 64, 16384, true);
  BOOST_TEST(costs_of(scored, l2_bytes).moved_bytes ==
             cache + rows + std::int64_t{64} * 32 * 16384 * 4);

  bench_case c{operation::quantize_pack, spec::format_id::int2_g16, models[3], 1};
  c.tokens = 4096;  // K and V of 64 halves, 64 bytes in a page
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == 3 * 4096 * (2 * 64 * 2 + 64));
  c.op = operation::gather_quantize;  // half of the tokens, and an index each
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == 3 * 2048 * (2 * 64 * 2 + 4 + 64));
  BOOST_TEST(costs_of(c, l2_bytes).tokens == 2048);
  c.op = operation::demote;
  c.format = spec::format_id::k8v4;
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == 3 * 2048 * (104 + 4 + 56));
}

// The last 64 tokens in fp16, a quarter of the others (whole tiles) in K8V4, the rest in K4V2.
BOOST_AUTO_TEST_CASE(costs_of_tiers) {
  bench_case c = decode_case(spec::format_id::k8v4, models[0], 64, 16384, false);
  c.tiers = true;
  const cache_parts parts = parts_of(c, 16384);
  BOOST_TEST(parts.quantized == 4080);
  BOOST_TEST(parts.low == 12240);
  BOOST_TEST(parts.recent == 64);
  BOOST_TEST(pages_of(c, parts) == 128 + 192);  // of 32 and of 64 tokens, the last ones begun
  // 200 bytes a token in the high tier, 104 in the low one, K and V of 128 halves in the recent
  // part.
  const std::int64_t cache = std::int64_t{64} * 8 * (4080 * 200 + 12240 * 104 + 64 * 512);
  const std::int64_t rows = std::int64_t{64} * 32 * (128 * 2 + 128 * 4 + 8);
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == cache + rows);
  BOOST_TEST(costs_of(c, l2_bytes).tokens == 64 * 16384);
  // The running sum of a token and KV head is read and written.
  c.significance = true;
  BOOST_TEST(costs_of(c, l2_bytes).moved_bytes == cache + rows + std::int64_t{64} * 8 * 16384 * 8);
  // Parts hold all tokens, whatever their number.
  for (const std::int64_t tokens : {0, 16, 64, 80, 144, 304, 16384}) {
    const cache_parts p = parts_of(c, tokens);
    BOOST_TEST(p.quantized + p.low + p.recent == tokens);
    BOOST_TEST((p.quantized >= 0 && p.low >= 0 && p.quantized % 16 == 0), tokens);
  }
}

BOOST_AUTO_TEST_CASE(copies_exceed_the_cache) {
  for (const bench_case& c : gpu_cases()) {
    const case_costs costs = costs_of(c, l2_bytes);
    BOOST_TEST(costs.copies * costs.moved_bytes >= 4 * l2_bytes, c.name());
    BOOST_TEST(costs.device_bytes >= costs.copies * costs.moved_bytes, c.name());
  }
}

}  // namespace
}  // namespace kvproof::bench
