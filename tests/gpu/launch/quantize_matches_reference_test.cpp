// The quantize kernels, run in the emulator (or on a GPU, test_device.hpp), write the reference's
// pages bit for bit, however the appends are cut, and touch no other byte.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <string>

#include "gpu/launch/launch.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/paged_heads.hpp"
#include "tests/gpu/launch/special_rows.hpp"
#include "tests/gpu/launch/test_device.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {
namespace {

constexpr int batch = 2, kv_heads = 3, heads = batch * kv_heads;

// Appends [head] tokens a step on the device and in the reference; the caches are compared after
// every step. steps[i] is the number of new tokens of head 0; other heads add or skip some.
void check_appends(spec::format_id id, int head_dim, const std::vector<std::int64_t>& steps,
                   std::uint64_t seed) {
  const spec::kv_format& format = spec::format_of(id);
  const std::string name = fmt::format("{} d{} seed {}", format.name, head_dim, seed);
  seeded_values random(seed);
  const std::int64_t unit = format.token_granularity;
  std::int64_t longest = 0;
  for (const std::int64_t n : steps) longest += n + 3 * unit;
  paged_heads cache(format, head_dim, heads, spec::pages_for_tokens(format, longest) + 1);

  const auto dev = open_test_device();
  const device_array<std::byte> device_pages(*dev, cache.in_device_order());
  const device_array<std::int32_t> device_table(*dev, cache.table);

  std::vector<std::int64_t> lengths(heads, 0);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    std::vector<std::int32_t> first, count;
    std::int64_t most = 0;
    for (int h = 0; h < heads; ++h) {
      const std::int64_t n = h == 1 && step % 2 == 0 ? 0 : steps[step] + (h % 4) * unit;
      first.push_back(static_cast<std::int32_t>(lengths[static_cast<std::size_t>(h)]));
      count.push_back(static_cast<std::int32_t>(n));
      most = std::max(most, n);
    }
    // [batch][token][kv_heads][head_dim], a row of 8 elements of padding behind each token
    const std::int64_t stride_token = std::int64_t{kv_heads} * head_dim + 8;
    const auto size = static_cast<std::size_t>(batch * most * stride_token);
    std::vector<half_bits> k(size, 0x7e00), v(size, 0x7e00);
    for (int h = 0; h < heads; ++h) {
      const std::int64_t n = count[static_cast<std::size_t>(h)];
      const std::vector<half_bits> keys = special_rows(random, n, head_dim),
                                   values = special_rows(random, n, head_dim);
      for (std::int64_t t = 0; t < n; ++t) {
        const std::ptrdiff_t to =
            (h / kv_heads * most + t) * stride_token + h % kv_heads * head_dim;
        std::copy_n(keys.begin() + t * head_dim, head_dim, k.begin() + to);
        std::copy_n(values.begin() + t * head_dim, head_dim, v.begin() + to);
      }
      reference::append_tokens(format, head_dim, keys, values, lengths[static_cast<std::size_t>(h)],
                               cache.head(h).writable());
      lengths[static_cast<std::size_t>(h)] += n;
    }
    const device_array<half_bits> device_k(*dev, k), device_v(*dev, v);
    const device_array<std::int32_t> device_first(*dev, first), device_count(*dev, count);

    gpu::quantize_args a{};
    a.format = id;
    a.head_dim = head_dim;
    a.batch = batch;
    a.kv_heads = kv_heads;
    a.max_new_tokens = static_cast<int>(most);
    a.k = device_k.get();
    a.v = device_v.get();
    a.stride_batch = most * stride_token;
    a.stride_token = stride_token;
    a.stride_head = head_dim;
    a.first_token = device_first.get();
    a.num_new = device_count.get();
    a.page_table = device_table.get();
    a.max_pages = static_cast<int>(cache.max_pages);
    a.pages = device_pages.get();
    gpu::quantize(*dev, a);
    dev->synchronize();

    const std::string difference = cache.difference(device_pages.read());
    BOOST_TEST(difference.empty(), name << " step " << step << ": " << difference);
    BOOST_TEST(device_pages.canaries_live());
  }
}

std::vector<std::int64_t> in_units(std::vector<std::int64_t> steps, std::int64_t unit) {
  for (std::int64_t& n : steps) n = (n + unit - 1) / unit * unit;
  return steps;
}

void sweep(spec::format_id id, int head_dim) {
  const std::int64_t unit = spec::format_of(id).token_granularity;
  check_appends(id, head_dim, in_units({1, 1, 1, 13, 1, 47, 1, 63, 64, 65}, unit), 1);
  check_appends(id, head_dim, in_units({16, 16, 128, 1, 128, 7}, unit), 2);
  check_appends(id, head_dim, in_units({641, 1, 1, 300}, unit), 3);
}

BOOST_AUTO_TEST_CASE(int2_g16_d64) { sweep(spec::format_id::int2_g16, 64); }
BOOST_AUTO_TEST_CASE(int2_g16_d128) { sweep(spec::format_id::int2_g16, 128); }
BOOST_AUTO_TEST_CASE(k8v4_d64) { sweep(spec::format_id::k8v4, 64); }
BOOST_AUTO_TEST_CASE(k8v4_d128) { sweep(spec::format_id::k8v4, 128); }
BOOST_AUTO_TEST_CASE(k4v2_d64) { sweep(spec::format_id::k4v2, 64); }
BOOST_AUTO_TEST_CASE(k4v2_d128) { sweep(spec::format_id::k4v2, 128); }

}  // namespace
}  // namespace kvproof::tests
