// gather_quantize, run in the emulator (or on a GPU, test_device.hpp), writes what the reference
// writes for the gathered rows.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>

#include "gpu/launch/gather_quantize.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/paged_heads.hpp"
#include "tests/gpu/launch/special_rows.hpp"
#include "tests/gpu/launch/test_device.hpp"

namespace kvproof::tests {
namespace {

constexpr int batch = 2, kv_heads = 3, heads = batch * kv_heads;
constexpr std::int64_t source_rows = 300;

// Ascending rows as a selection gives them; every second head in any order, with repetitions.
std::vector<std::int32_t> selection(seeded_values& random, int head, std::int64_t n) {
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < n; ++i)
    rows.push_back(static_cast<std::int32_t>(random.below(source_rows)));
  if (n > 0) rows.front() = static_cast<std::int32_t>(source_rows - 1);  // the last row is there
  if (head % 2 == 0) std::sort(rows.begin(), rows.end());
  return rows;
}

void check(spec::format_id id, int head_dim, const std::vector<std::int64_t>& steps) {
  const spec::kv_format& format = spec::format_of(id);
  const std::int64_t unit = format.token_granularity;
  seeded_values random(static_cast<std::uint64_t>(head_dim));
  const auto dev = open_test_device();
  std::int64_t longest = 0;
  for (const std::int64_t n : steps) longest += n + 2 * unit;
  paged_heads cache(format, head_dim, heads, spec::pages_for_tokens(format, longest));

  // [batch][token][kv_heads][head_dim]
  const std::vector<half_bits> k = special_rows(random, batch * source_rows * kv_heads, head_dim);
  const std::vector<half_bits> v = special_rows(random, batch * source_rows * kv_heads, head_dim);
  const device_array<half_bits> device_k(*dev, k), device_v(*dev, v);
  const device_array<std::byte> device_pages(*dev, cache.in_device_order());
  const device_array<std::int32_t> device_table(*dev, cache.table);

  std::vector<std::int64_t> lengths(heads, 0);
  for (const std::int64_t step : steps) {
    const std::int64_t most = step + 2 * unit, capacity = most + 5;
    std::vector<std::int32_t> first, count;
    std::vector<std::int32_t> selected(static_cast<std::size_t>(heads * capacity), -1);
    for (int h = 0; h < heads; ++h) {
      const std::int64_t n = h == 4 ? 0 : step + h % 3 * unit;
      const std::vector<std::int32_t> list = selection(random, h, n);
      std::copy(list.begin(), list.end(), selected.begin() + h * capacity);
      first.push_back(static_cast<std::int32_t>(lengths[static_cast<std::size_t>(h)]));
      count.push_back(static_cast<std::int32_t>(n));
      std::vector<half_bits> keys, values;
      for (const std::int32_t row : list) {
        const std::int64_t at =
            ((h / kv_heads * source_rows + row) * kv_heads + h % kv_heads) * head_dim;
        keys.insert(keys.end(), k.begin() + at, k.begin() + at + head_dim);
        values.insert(values.end(), v.begin() + at, v.begin() + at + head_dim);
      }
      reference::append_tokens(format, head_dim, keys, values, lengths[static_cast<std::size_t>(h)],
                               cache.head(h).writable());
      lengths[static_cast<std::size_t>(h)] += n;
    }
    const device_array<std::int32_t> device_first(*dev, first), device_count(*dev, count),
        device_selected(*dev, selected);
    gpu::gather_quantize_args a{};
    a.append.format = id;
    a.append.head_dim = head_dim;
    a.append.batch = batch;
    a.append.kv_heads = kv_heads;
    a.append.max_new_tokens = static_cast<int>(most);
    a.append.k = device_k.get();
    a.append.v = device_v.get();
    a.append.stride_batch = source_rows * kv_heads * head_dim;
    a.append.stride_token = std::int64_t{kv_heads} * head_dim;
    a.append.stride_head = head_dim;
    a.append.first_token = device_first.get();
    a.append.num_new = device_count.get();
    a.append.page_table = device_table.get();
    a.append.max_pages = static_cast<int>(cache.max_pages);
    a.append.pages = device_pages.get();
    a.selected = device_selected.get();
    a.max_selected = static_cast<int>(capacity);
    gpu::gather_quantize(*dev, a);
    dev->synchronize();

    const std::string difference = cache.difference(device_pages.read());
    BOOST_TEST(difference.empty(),
               format.name << " d" << head_dim << " step of " << step << ": " << difference);
    BOOST_TEST(device_pages.canaries_live());
  }
}

void sweep(spec::format_id id) {
  const bool by_tile = spec::format_of(id).token_granularity == 16;
  for (const int head_dim : {64, 128})
    check(id, head_dim,
          by_tile ? std::vector<std::int64_t>{48, 16, 128, 80}
                  : std::vector<std::int64_t>{1, 62, 1, 3, 129, 77});
}

BOOST_AUTO_TEST_CASE(int2_g16) { sweep(spec::format_id::int2_g16); }
BOOST_AUTO_TEST_CASE(k8v4) { sweep(spec::format_id::k8v4); }
BOOST_AUTO_TEST_CASE(k4v2) { sweep(spec::format_id::k4v2); }

}  // namespace
}  // namespace kvproof::tests
