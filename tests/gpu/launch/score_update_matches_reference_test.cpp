// The score update kernels, run in the emulator (or on a GPU, test_device.hpp), equal the reference
// bit for bit at every GQA ratio and length, read what is theirs and write nothing else; also
// behind a decode step, against the reference's own chain.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "gpu/launch/score_update.hpp"
#include "reference/attention/decode_attention.hpp"
#include "reference/attention/score_update.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/paged_heads.hpp"
#include "tests/gpu/launch/test_device.hpp"
#include "tests/reference/attention/head_fixture.hpp"

namespace kvproof::tests {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float untouched = -123.0f;  // no update leaves a negative number

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

std::string difference(const std::vector<float>& actual, const std::vector<float>& expected,
                       std::int64_t capacity) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (same(actual[i], expected[i])) continue;
    const auto at = static_cast<std::int64_t>(i);
    return fmt::format("head {} token {}: {:08x}, not {:08x}", at / capacity, at % capacity,
                       std::bit_cast<std::uint32_t>(actual[i]),
                       std::bit_cast<std::uint32_t>(expected[i]));
  }
  return "";
}

struct shape {
  int batch, kv_heads, ratio;
  std::vector<std::int32_t> num_tokens;  // [batch][kv_heads]

  [[nodiscard]] std::int64_t longest() const {
    return *std::max_element(num_tokens.begin(), num_tokens.end());
  }
};

// Logits and states of every head. Logits behind a head's end are NaN.
struct heads_data {
  std::vector<float> scores, state, running;

  heads_data(const shape& s, std::int64_t score_capacity, std::int64_t running_capacity,
             std::uint64_t seed)
      : scores(s.num_tokens.size() * static_cast<std::size_t>(score_capacity * s.ratio), nan),
        running(s.num_tokens.size() * static_cast<std::size_t>(running_capacity), untouched) {
    seeded_values random(seed);
    for (std::size_t h = 0; h < s.num_tokens.size(); ++h) {
      const std::int64_t n = s.num_tokens[h];
      const auto score_at = h * static_cast<std::size_t>(score_capacity * s.ratio);
      for (std::int64_t i = 0; i < n * s.ratio; ++i) {
        const std::int64_t kind = random.below(64);  // a few that are flushed, infinite or NaN
        scores[score_at + static_cast<std::size_t>(i)] =
            kind == 0   ? -infinity
            : kind == 1 ? nan
            : kind == 2 ? static_cast<float>(-100 - 30 * random.uniform())
                        : static_cast<float>(5 * random.normal());
      }
      for (std::int64_t t = 0; t < n; ++t) {
        running[h * static_cast<std::size_t>(running_capacity) + static_cast<std::size_t>(t)] =
            t % 7 == 0 ? 0.0f : static_cast<float>(3 * random.uniform());
      }
      for (int g = 0; g < s.ratio; ++g) {
        state.push_back(n == 0 ? -infinity : static_cast<float>(4 + random.normal()));
        state.push_back(n == 0 ? 0.0f : static_cast<float>(1 + 20 * random.uniform()));
      }
    }
  }
};

void check(gpu::device& dev, const shape& s, std::int64_t score_capacity,
           std::int64_t running_capacity, std::int64_t max_tokens, std::uint64_t seed) {
  const std::string name =
      fmt::format("g{} batch {} heads {} seed {}", s.ratio, s.batch, s.kv_heads, seed);
  const heads_data data(s, score_capacity, running_capacity, seed);
  const device_array<float> scores(dev, data.scores), state(dev, data.state),
      running(dev, data.running);
  const device_array<std::int32_t> num_tokens(dev, s.num_tokens);
  gpu::score_update_args a{};
  a.batch = s.batch;
  a.kv_heads = s.kv_heads;
  a.gqa_ratio = s.ratio;
  a.max_tokens = max_tokens;
  a.scores = scores.get();
  a.score_capacity = score_capacity;
  a.state = state.get();
  a.num_tokens = num_tokens.get();
  a.running = running.get();
  a.running_capacity = running_capacity;

  std::vector<float> expected = data.running;
  for (int step = 0; step < 2; ++step) {  // sums go on where they stand
    gpu::score_update(dev, a);
    dev.synchronize();
    for (std::size_t h = 0; h < s.num_tokens.size(); ++h) {
      const auto n = static_cast<std::size_t>(s.num_tokens[h]);
      const auto ratio = static_cast<std::size_t>(s.ratio);
      reference::update_scores(
          {s.ratio,
           std::span(data.scores)
               .subspan(h * static_cast<std::size_t>(score_capacity) * ratio, n * ratio),
           std::span(data.state).subspan(h * ratio * 2, ratio * 2)},
          std::span(expected).subspan(h * static_cast<std::size_t>(running_capacity), n));
    }
    const std::string found = difference(running.read(), expected, running_capacity);
    BOOST_TEST(found.empty(), name << " step " << step << ": " << found);
  }
  BOOST_TEST(running.canaries_live(), name);
  BOOST_TEST(scores.canaries_live(), name);
  BOOST_TEST(difference(scores.read(), data.scores, score_capacity * s.ratio).empty(), name);
  BOOST_TEST(difference(state.read(), data.state, 2 * s.ratio).empty(), name);
}

// Lengths about units, warps (128), CTAs (512) and the whole buffer.
BOOST_AUTO_TEST_CASE(every_ratio_and_length) {
  const auto dev = open_test_device();
  const std::vector<std::int32_t> lengths = {0,   1,   2,   3,   4,   5,    7,    127,  128,
                                             129, 131, 511, 512, 513, 1023, 1024, 1025, 640};
  for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio) {
    const auto seed = static_cast<std::uint64_t>(ratio);
    check(*dev, {6, 3, ratio, lengths}, 1028, 1032, 1025, seed);
    check(*dev, {1, 18, ratio, lengths}, 1028, 1028, 1028, 100 + seed);
    check(*dev, {1, 1, ratio, {1024}}, 1024, 1024, 1024, 200 + seed);  // full to the last byte
  }
}

// Heads without a token, and launches whose upper bound is far from any length.
BOOST_AUTO_TEST_CASE(empty_and_loose_bounds) {
  const auto dev = open_test_device();
  for (int ratio = 1; ratio <= spec::max_gqa_ratio; ++ratio) {
    check(*dev, {2, 2, ratio, {0, 0, 0, 0}}, 4, 4, 4, 300);
    check(*dev, {2, 2, ratio, {3, 0, 1, 4}}, 2600, 2604, 2600, 301);
  }
}

// decode, then score_update on what it wrote, twice with other queries; the reference the same.
BOOST_AUTO_TEST_CASE(after_decode) {
  constexpr int batch = 2, kv_heads = 2, heads = batch * kv_heads, ratio = 4, head_dim = 128;
  constexpr std::int64_t capacity = 1200, recent_capacity = 32;
  const std::vector<std::int32_t> quantized = {1057, 0, 64, 130}, recent = {17, 0, 5, 0};
  const spec::kv_format& format = spec::format_of(spec::format_id::k4v2);
  const auto dev = open_test_device();

  const std::int64_t max_pages = spec::pages_for_tokens(format, 1057);
  paged_heads cache(format, head_dim, heads, max_pages);
  std::vector<head_fixture> fixtures;
  std::vector<half_bits> recent_k(heads * recent_capacity * head_dim, 0), recent_v = recent_k;
  std::vector<std::int32_t> lengths;
  for (int h = 0; h < heads; ++h) {
    const auto i = static_cast<std::size_t>(h);
    fixtures.push_back(random_head({format.id, head_dim, ratio, quantized[i], recent[i]}, i, 2));
    const head_fixture& f = fixtures.back();
    for (std::size_t page = 0; page < f.pool.bytes.size(); ++page)
      cache.head(h).bytes[page] = f.pool.bytes[page];
    const std::ptrdiff_t from = std::ptrdiff_t{quantized[i]} * head_dim;
    std::copy(f.k.begin() + from, f.k.end(), recent_k.begin() + h * recent_capacity * head_dim);
    std::copy(f.v.begin() + from, f.v.end(), recent_v.begin() + h * recent_capacity * head_dim);
    lengths.push_back(quantized[i] + recent[i]);
  }
  const device_array<std::byte> pages(*dev, cache.in_device_order());
  const device_array<std::int32_t> table(*dev, cache.table), num_quantized(*dev, quantized),
      num_recent(*dev, recent), num_tokens(*dev, lengths);
  const device_array<half_bits> device_k(*dev, recent_k), device_v(*dev, recent_v);
  const device_array<float> out(*dev, std::vector<float>(heads * ratio * head_dim, nan)),
      state(*dev, std::vector<float>(heads * ratio * 2, nan)),
      scores(*dev, std::vector<float>(heads * capacity * ratio, nan)),
      running(*dev, std::vector<float>(heads * capacity, 0.0f));

  gpu::decode_args d{};
  d.format = format.id;
  d.head_dim = head_dim;
  d.batch = batch;
  d.kv_heads = kv_heads;
  d.gqa_ratio = ratio;
  d.softmax_scale = fixtures[0].softmax_scale;
  d.max_quantized = 1057;
  d.page_table = table.get();
  d.max_pages = static_cast<int>(max_pages);
  d.pages = pages.get();
  d.num_quantized = num_quantized.get();
  d.num_recent = num_recent.get();
  d.recent_k = device_k.get();
  d.recent_v = device_v.get();
  d.recent_capacity = static_cast<int>(recent_capacity);
  d.out = out.get();
  d.state = state.get();
  d.scores = scores.get();
  d.score_capacity = capacity;
  const device_array<std::byte> workspace(
      *dev, std::vector<std::byte>(static_cast<std::size_t>(gpu::decode_workspace_bytes(d))));
  d.workspace = workspace.get();
  gpu::score_update_args u{};
  u.batch = batch;
  u.kv_heads = kv_heads;
  u.gqa_ratio = ratio;
  u.max_tokens = 1057 + recent_capacity;
  u.scores = scores.get();
  u.score_capacity = capacity;
  u.state = state.get();
  u.num_tokens = num_tokens.get();
  u.running = running.get();
  u.running_capacity = capacity;

  std::vector<float> expected(heads * capacity, 0.0f);
  for (int step = 0; step < 2; ++step) {
    seeded_values random(static_cast<std::uint64_t>(step) + 50);
    std::vector<half_bits> q;
    for (head_fixture& f : fixtures) {
      f.q = random.normal_halves(ratio * head_dim, 2);
      q.insert(q.end(), f.q.begin(), f.q.end());
    }
    const device_array<half_bits> device_q(*dev, q);
    d.q = device_q.get();
    gpu::decode(*dev, d);
    gpu::score_update(*dev, u);
    dev->synchronize();
    for (int h = 0; h < heads; ++h) {
      const auto i = static_cast<std::size_t>(h);
      const reference::decode_output o = reference::decode_attention(fixtures[i].input());
      reference::update_scores(
          {ratio, o.scores, o.state},
          std::span(expected).subspan(i * capacity, static_cast<std::size_t>(lengths[i])));
    }
    const std::string found = difference(running.read(), expected, capacity);
    BOOST_TEST(found.empty(), "step " << step << ": " << found);
    BOOST_TEST(running.canaries_live());
  }
  // Two steps of G = 4: a token's sum is at most 2, a head's between 2 and 8.
  const double total = std::accumulate(expected.begin(), expected.begin() + lengths[0], 0.0);
  BOOST_TEST((total > 1.99 && total < 8.01), total);
}

}  // namespace
}  // namespace kvproof::tests
