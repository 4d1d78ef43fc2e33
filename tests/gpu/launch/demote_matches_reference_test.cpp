// The demotion kernels, run in the emulator (or on a GPU, test_device.hpp), write the reference's
// K4V2 pages bit for bit, in both modes, for any list of tokens, and leave the K8V4 pages alone.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>

#include "gpu/launch/demote.hpp"
#include "reference/formats/demotion.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/paged_heads.hpp"
#include "tests/gpu/launch/special_rows.hpp"
#include "tests/gpu/launch/test_device.hpp"

namespace kvproof::tests {
namespace {

constexpr int batch = 2, kv_heads = 3, heads = batch * kv_heads;
constexpr std::int64_t source_tokens = 290;

struct step {
  std::int64_t num_tokens;  // of head 0; others take some more
  std::int64_t first;       // replace only
  gpu::demote_mode mode;
};

// By head: a run from a random token on, a run from a tile on, backwards, anything.
std::vector<std::int32_t> token_list(seeded_values& random, int head, std::int64_t n) {
  std::vector<std::int32_t> list;
  const std::int64_t start = head % 4 == 1 ? 16 : random.below(100);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t token = head % 4 == 2   ? source_tokens - 1 - i % source_tokens
                               : head % 4 == 3 ? random.below(source_tokens)
                                               : (start + i) % source_tokens;
    list.push_back(static_cast<std::int32_t>(token));
  }
  return list;
}

void check(int head_dim, const std::vector<step>& steps) {
  const spec::kv_format &high = spec::format_of(spec::format_id::k8v4),
                        &low = spec::format_of(spec::format_id::k4v2);
  seeded_values random(static_cast<std::uint64_t>(head_dim) + 1);
  const auto dev = open_test_device();
  paged_heads from(high, head_dim, heads, spec::pages_for_tokens(high, source_tokens));
  for (page_pool& pool : from.pools) {
    reference::append_tokens(high, head_dim, special_rows(random, source_tokens, head_dim),
                             special_rows(random, source_tokens, head_dim), 0, pool.writable());
  }
  std::int64_t longest = 0;
  for (const step& s : steps) longest += s.num_tokens + 3;
  paged_heads to(low, head_dim, heads, spec::pages_for_tokens(low, longest));
  const device_array<std::byte> from_pages(*dev, from.in_device_order()),
      to_pages(*dev, to.in_device_order());
  const device_array<std::int32_t> from_table(*dev, from.table), to_table(*dev, to.table);

  std::vector<std::int64_t> lengths(heads, 0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const step& s = steps[i];
    const bool append = s.mode == gpu::demote_mode::append;
    const std::int64_t capacity = s.num_tokens + 3;
    std::vector<std::int32_t> first, count;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(heads * capacity), -1);
    for (int h = 0; h < heads; ++h) {
      std::int64_t& length = lengths[static_cast<std::size_t>(h)];
      const std::int64_t n = h == 5 ? 0 : s.num_tokens + (append ? h % 4 : 0);
      const std::int64_t begin = append ? length : s.first;
      const std::vector<std::int32_t> list = token_list(random, h, n);
      std::copy(list.begin(), list.end(), tokens.begin() + h * capacity);
      first.push_back(static_cast<std::int32_t>(begin));
      count.push_back(static_cast<std::int32_t>(n));
      reference::demote_tokens(
          head_dim, from.head(h).readable(), list, begin, to.head(h).writable(),
          append ? reference::demote_mode::append : reference::demote_mode::replace);
      if (append) length += n;
    }
    const device_array<std::int32_t> device_tokens(*dev, tokens), device_first(*dev, first),
        device_count(*dev, count);
    gpu::demote_args a{};
    a.head_dim = head_dim;
    a.batch = batch;
    a.kv_heads = kv_heads;
    a.max_tokens = static_cast<int>(capacity);
    a.tokens = device_tokens.get();
    a.num_tokens = device_count.get();
    a.from_table = from_table.get();
    a.max_from_pages = static_cast<int>(from.max_pages);
    a.from_pages = from_pages.get();
    a.first_token = device_first.get();
    a.to_table = to_table.get();
    a.max_to_pages = static_cast<int>(to.max_pages);
    a.to_pages = to_pages.get();
    a.mode = s.mode;
    gpu::demote(*dev, a);
    dev->synchronize();

    const std::string difference = to.difference(to_pages.read());
    BOOST_TEST(difference.empty(), "d" << head_dim << " step " << i << ": " << difference);
    BOOST_TEST(to_pages.canaries_live());
  }
  BOOST_TEST(from.difference(from_pages.read()).empty(), "the source changed");
  BOOST_TEST(from_pages.canaries_live());
}

void sweep(int head_dim) {
  constexpr auto append = gpu::demote_mode::append, replace = gpu::demote_mode::replace;
  check(head_dim, {{1, 0, append},
                   {15, 0, append},
                   {47, 0, append},
                   {1, 0, replace},
                   {1, 17, replace},
                   {128, 0, append},
                   {77, 0, append},
                   {1, 64, replace},
                   {33, 60, replace},
                   {64, 64, replace},
                   {0, 0, append},
                   {3, 0, append}});
}

BOOST_AUTO_TEST_CASE(d64) { sweep(64); }
BOOST_AUTO_TEST_CASE(d128) { sweep(128); }

}  // namespace
}  // namespace kvproof::tests
