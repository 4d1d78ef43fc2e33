// The decode kernels of two tiers, K8V4 and K4V2 pages of one pool listed in one table from both
// ends, run in the emulator, equal the reference bit for bit: outputs, state, scores; for any grid;
// and write nothing else.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/gpu/launch/decode_comparison.hpp"

namespace kvproof::tests {
namespace {

decode_shape two_tiers(int head_dim, int ratio, std::vector<head_lengths> lengths) {
  const int kv_heads = lengths.size() % 2 == 0 ? 2 : 1;
  return {spec::format_id::k8v4, head_dim, ratio, kv_heads, std::move(lengths), true};
}

// Lengths about pages (32 and 64 tokens), blocks and splits of either tier beside few or many
// tokens of the other, and of one tier alone; each without and with a recent part.
decode_shape edges(int head_dim, int ratio) {
  const std::vector<head_lengths> with_recent = {
      {0, 0, 33},   {1, 0, 5},      {0, 1, 64},    {31, 33, 1},   {33, 31, 127}, {32, 64, 32},
      {64, 32, 31}, {63, 65, 33},   {65, 63, 8},   {96, 0, 5},    {0, 129, 31},  {1023, 1, 40},
      {1, 1023, 3}, {1024, 32, 64}, {64, 1024, 2}, {1025, 65, 1}, {33, 1025, 96}};
  std::vector<head_lengths> lengths;
  for (const head_lengths& n : with_recent) {
    lengths.push_back({n.quantized, n.low, 0});
    lengths.push_back(n);
  }
  return two_tiers(head_dim, ratio, std::move(lengths));
}

void sweep(int head_dim) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const decode_comparison c(edges(head_dim, ratio),
                              static_cast<std::uint64_t>(300 * head_dim + ratio));
    c.run(0, true, ratio % 2 == 1);
    c.run(5, false, ratio % 2 == 0);  // ranges end inside heads and tiers: partials and tickets
  }
}

BOOST_AUTO_TEST_CASE(tiers_d64) { sweep(64); }
BOOST_AUTO_TEST_CASE(tiers_d128) { sweep(128); }

// One CTA, two, a prime, one a work item, more CTAs than work; warps in another order.
BOOST_AUTO_TEST_CASE(any_grid) {
  const decode_comparison c(
      two_tiers(64, 3, {{0, 2064, 0}, {2064, 0, 33}, {1100, 1300, 0}, {40, 70, 9}, {0, 0, 0}}), 17);
  for (const std::uint32_t grid : {1u, 2u, 7u, 35u, 61u}) {
    c.run(grid, true, true);
    c.run(grid, true, false);
  }
  for (const std::uint32_t grid : {1u, 7u})
    c.run(grid, true, grid == 1, gpu::emulator::warp_order::latest_first);
}

// Splits of 1024 tokens up to 8192, of 2048 beyond, decided for each tier of each head. A warp has
// more than 32 pages of a tier.
BOOST_AUTO_TEST_CASE(split_length) {
  for (const auto& [head_dim, ratio] : {std::pair{64, 2}, {128, 5}}) {
    const decode_comparison c(
        two_tiers(head_dim, ratio, {{8193, 100, 0}, {70, 8193, 17}, {8192, 8200, 1}}), 18);
    c.run(0, true);
    c.run(3, false, false);
  }
}

// More splits than a warp has lanes: the factors of the final merge take two rounds. The largest
// logits stand in the first split of the high tier (head 0) or the last of the low one (head 1).
BOOST_AUTO_TEST_CASE(more_than_32_splits) {
  const decode_comparison c(
      two_tiers(64, 2, {{34000, 36000, 1}, {36000, 34000, 0}}), 19,
      [](std::size_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>&) {
        const std::size_t size = 4 * static_cast<std::size_t>(head_dim);  // of four tokens
        const std::size_t from = size * (head == 0 ? 25 : 17490);
        for (std::size_t i = from; i < from + size; ++i)
          k[i] = static_cast<half_bits>((k[i] & 0x8000) | 0x4400);  // +-4
      });
  for (const std::uint32_t grid : {1u, 11u}) c.run(grid, grid == 11, grid == 1);
}

// NaN and infinity stay visible and stay where the contract says, in either tier.
BOOST_AUTO_TEST_CASE(nan_and_infinity) {
  const decode_comparison c(
      two_tiers(128, 4, {{64, 70, 0}, {208, 90, 3}, {90, 208, 3}, {50, 1040, 0}}), 20,
      [](std::size_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>& v) {
        // Tokens 37 and 102: of the low tier in heads 0 (the second) and 2, 3.
        const auto at = static_cast<std::size_t>((head == 1 ? 37 : 102) * head_dim + 21);
        if (head % 2 == 0) k[at] = head == 0 ? 0x7c00 : half_nan;
        if (head % 2 == 1) v[at] = 0xfc00;
      });
  const auto is_nan = [](float x) { return std::isnan(x); };
  for (const std::size_t head : {0u, 1u, 2u, 3u})
    BOOST_TEST(std::ranges::all_of(c.expected()[head].out, is_nan));
  for (const std::size_t head : {1u, 3u})
    BOOST_TEST(std::ranges::none_of(c.expected()[head].state, is_nan));
  c.run(0, true);
  c.run(4, true);
}

}  // namespace
}  // namespace kvproof::tests
