// One decode launch on caches given as host arrays: results as bits, after checks that hold for any
// data: tickets are zero again, pages are unchanged, nothing is written behind a buffer's end.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/launch/launch.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {

constexpr std::uint32_t decode_poison = 0xcdcdcdcd;  // of results before a launch
constexpr half_bits half_nan = 0x7e00;

struct decode_heads {
  spec::format_id format{};
  int head_dim = 0, ratio = 0, batch = 0, kv_heads = 0;
  float scale = 0;
  std::vector<half_bits> q;                             // [batch][q_heads][head_dim]
  std::vector<std::byte> pages;                         // the pool
  std::vector<std::int32_t> table;                      // [batch][kv_heads][max_pages]
  std::int64_t max_pages = 0, max_quantized = 0;        // of a head
  std::vector<std::int32_t> num_quantized, num_recent;  // [batch][kv_heads]
  std::int64_t max_low = 0;
  std::vector<std::int32_t> num_low;  // [batch][kv_heads]; empty: one part
  int recent_capacity = 0;
  std::vector<half_bits> recent_k, recent_v;  // [batch][kv_heads][recent_capacity][head_dim]
  std::int64_t score_capacity = 0;

  [[nodiscard]] std::size_t heads() const { return num_quantized.size(); }
};

struct decode_results {
  std::vector<std::uint32_t> out;     // [batch][q_heads][head_dim]
  std::vector<std::uint32_t> state;   // [batch][q_heads][2]
  std::vector<std::uint32_t> scores;  // [batch][kv_heads][score_capacity][ratio]
};

// `equal_lengths`: which of the two ways to share work. `name` appears in failures.
inline decode_results launch_decode(gpu::device& dev, const decode_heads& h, bool with_scores,
                                    bool equal_lengths, const std::string& name) {
  const device_array<half_bits> q(dev, h.q), recent_k(dev, h.recent_k), recent_v(dev, h.recent_v);
  const device_array<std::byte> pages(dev, h.pages);
  const device_array<std::int32_t> table(dev, h.table), num_quantized(dev, h.num_quantized),
      num_recent(dev, h.num_recent), num_low(dev, h.num_low);
  const auto poisoned = [&](std::size_t n) {
    return device_array<std::uint32_t>(dev, std::vector<std::uint32_t>(n, decode_poison));
  };
  const std::size_t queries = h.heads() * static_cast<std::size_t>(h.ratio);
  const auto out = poisoned(queries * static_cast<std::size_t>(h.head_dim)),
             state = poisoned(queries * 2),
             scores = poisoned(queries * static_cast<std::size_t>(h.score_capacity));

  gpu::decode_args a{};
  a.format = h.format;
  a.head_dim = h.head_dim;
  a.batch = h.batch;
  a.kv_heads = h.kv_heads;
  a.gqa_ratio = h.ratio;
  a.softmax_scale = h.scale;
  a.max_quantized = static_cast<int>(h.max_quantized);
  a.max_low = static_cast<int>(h.max_low);
  a.equal_lengths = equal_lengths;
  a.q = q.get();
  a.page_table = table.get();
  a.max_pages = static_cast<int>(h.max_pages);
  a.pages = pages.get();
  a.num_quantized = num_quantized.get();
  a.num_recent = num_recent.get();
  if (!h.num_low.empty()) a.num_low = num_low.get();
  a.recent_k = recent_k.get();
  a.recent_v = recent_v.get();
  a.recent_capacity = h.recent_capacity;
  a.out = out.get();
  a.state = state.get();
  if (with_scores) a.scores = scores.get();
  a.score_capacity = h.score_capacity;
  // Tickets are zero, the partials behind them NaN.
  std::vector<std::uint32_t> scratch(static_cast<std::size_t>(gpu::decode_workspace_bytes(a)) / 4,
                                     0xffffffff);
  std::fill_n(scratch.begin(), h.heads(), 0u);
  const device_array<std::uint32_t> workspace(dev, scratch);
  a.workspace = workspace.get();

  gpu::decode(dev, a);
  dev.synchronize();

  const std::vector<std::uint32_t> after = workspace.read();
  BOOST_TEST(std::all_of(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(h.heads()),
                         [](std::uint32_t x) { return x == 0; }),
             name << ": tickets are not zero after the launch");
  BOOST_TEST((pages.read() == h.pages), name << ": pages changed");
  BOOST_TEST(out.canaries_live());
  BOOST_TEST(state.canaries_live());
  BOOST_TEST(scores.canaries_live());
  BOOST_TEST(workspace.canaries_live());
  return {out.read(), state.read(), scores.read()};
}

}  // namespace kvproof::tests
