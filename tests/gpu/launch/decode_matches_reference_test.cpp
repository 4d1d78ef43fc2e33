// The decode kernels of one format, run in the emulator, equal the reference bit for bit: outputs,
// state, scores; for any grid; and write nothing else.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/gpu/launch/decode_comparison.hpp"

namespace kvproof::tests {
namespace {

// Lengths about tiles, pages, recent blocks and splits; int2_g16 takes whole groups only.
decode_shape lengths(spec::format_id format, int head_dim, int ratio) {
  const std::int64_t step = spec::format_of(format).token_granularity;
  std::vector<std::int64_t> quantized = {0, 1, 15, 16, 17, 64, 65, 127, 128, 129, 300, 1025};
  for (std::int64_t& n : quantized) n = (n + step - 1) / step * step;
  quantized.erase(std::unique(quantized.begin(), quantized.end()), quantized.end());
  return every_pair(format, head_dim, ratio, quantized, {0, 1, 31, 32, 33, 127});
}

void sweep(spec::format_id format, int head_dim) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const decode_comparison c(lengths(format, head_dim, ratio),
                              static_cast<std::uint64_t>(100 * head_dim + ratio));
    c.run(0, true);
    c.run(5, false, ratio % 2 == 0);  // ranges end inside heads: partials and tickets
  }
}

BOOST_AUTO_TEST_CASE(int2_g16_d64) { sweep(spec::format_id::int2_g16, 64); }
BOOST_AUTO_TEST_CASE(int2_g16_d128) { sweep(spec::format_id::int2_g16, 128); }
BOOST_AUTO_TEST_CASE(k8v4_d64) { sweep(spec::format_id::k8v4, 64); }
BOOST_AUTO_TEST_CASE(k8v4_d128) { sweep(spec::format_id::k8v4, 128); }
BOOST_AUTO_TEST_CASE(k4v2_d64) { sweep(spec::format_id::k4v2, 64); }
BOOST_AUTO_TEST_CASE(k4v2_d128) { sweep(spec::format_id::k4v2, 128); }

// One CTA, two, a prime, one a work item, more CTAs than work; warps in another order.
BOOST_AUTO_TEST_CASE(any_grid) {
  for (const spec::kv_format& format : spec::kv_formats) {
    const decode_shape s = every_pair(format.id, 64, 3, {0, 16, 1008, 2064, 4096}, {0, 33});
    const decode_comparison c(s, 7);
    for (const std::uint32_t grid : {1u, 2u, 7u, 50u, 61u}) {
      c.run(grid, true, true);
      c.run(grid, true, false);
    }
    for (const std::uint32_t grid : {1u, 7u})
      c.run(grid, true, grid == 1, gpu::emulator::warp_order::latest_first);
  }
}

// Splits of 1024 tokens up to 8192, of 2048 beyond, decided for each head.
BOOST_AUTO_TEST_CASE(split_length) {
  for (const spec::kv_format& format : spec::kv_formats) {
    const decode_shape s = every_pair(format.id, 64, 2, {8176, 8192, 8208, 10256}, {0, 1});
    const decode_comparison c(s, 8);
    c.run(0, true);
    c.run(3, false, false);
  }
}

// More splits than a warp has lanes: the factors of the final merge take two rounds. The largest
// logits stand in the first split (head 0), in the last (head 1) or anywhere (head 2).
BOOST_AUTO_TEST_CASE(more_than_32_splits) {
  const decode_comparison c(
      every_pair(spec::format_id::k4v2, 64, 2, {70000}, {1, 0, 2}), 9,
      [](std::size_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>&) {
        if (head == 2) return;
        const std::size_t size = 4 * static_cast<std::size_t>(head_dim);  // of four tokens
        const std::size_t from = size * (head == 0 ? 25 : 17490);
        for (std::size_t i = from; i < from + size; ++i)
          k[i] = static_cast<half_bits>((k[i] & 0x8000) | 0x4400);  // +-4
      });
  for (const std::uint32_t grid : {1u, 5u, 108u}) c.run(grid, grid == 5, grid != 108);
}

// NaN and infinity stay visible and stay where the contract says.
BOOST_AUTO_TEST_CASE(nan_and_infinity) {
  for (const spec::kv_format& format : spec::kv_formats) {
    const decode_shape s = every_pair(format.id, 128, 4, {64, 208, 1040}, {0, 3});
    const decode_comparison c(
        s, 10,
        [](std::size_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>& v) {
          const auto at = static_cast<std::size_t>(37 * head_dim + 21);
          if (head % 2 == 0) k[at] = head == 0 ? 0x7c00 : half_nan;
          if (head % 2 == 1) v[at] = 0xfc00;
        });
    const auto is_nan = [](float x) { return std::isnan(x); };
    BOOST_TEST(std::all_of(c.expected()[0].out.begin(), c.expected()[0].out.end(), is_nan));
    BOOST_TEST(std::any_of(c.expected()[1].out.begin(), c.expected()[1].out.end(), is_nan));
    BOOST_TEST(!std::any_of(c.expected()[1].state.begin(), c.expected()[1].state.end(), is_nan));
    c.run(0, true);
    c.run(4, true);
  }
}

}  // namespace
}  // namespace kvproof::tests
