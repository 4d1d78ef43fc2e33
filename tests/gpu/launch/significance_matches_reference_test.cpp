// Decode with significance equals the reference's decode attention and score update bit for bit,
// step after step in one workspace, for every size of a slice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "gpu/launch/significance.hpp"
#include "reference/attention/decode_attention.hpp"
#include "reference/attention/score_update.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/paged_heads.hpp"
#include "tests/gpu/launch/test_device.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {
namespace {

// So many heads that the tickets of slices of different sizes take different space.
constexpr int batch = 5, kv_heads = 32, ratio = 3, heads = batch * kv_heads, head_dim = 64;
constexpr int recent_capacity = 16, max_quantized = 1100, max_low = 1030, steps = 2;
constexpr std::array<int, batch> quantized_of = {1100, 0, 70, 1, 129};  // of the first KV head

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// Pages of all heads in one pool, and the table: a part from the front of a head's row, the low
// tier (without one: nothing) from its end, backwards.
struct pooled_heads {
  paged_heads first, low;
  std::int64_t max_pages;
  std::vector<std::int32_t> table;

  pooled_heads(const spec::kv_format& format, std::int64_t first_pages, std::int64_t low_pages)
      : first(format, head_dim, heads, first_pages),
        low(spec::format_of(spec::format_id::k4v2), head_dim, heads, low_pages),
        max_pages(first_pages + low_pages),
        table(static_cast<std::size_t>(heads * max_pages)) {
    for (int h = 0; h < heads; ++h) {
      const auto row = table.begin() + h * max_pages;
      std::copy_n(first.table.begin() + h * first_pages, first_pages, row);
      for (std::int64_t i = 0; i < low_pages; ++i) {
        row[max_pages - 1 - i] = static_cast<std::int32_t>(
            std::ssize(first.table) + low.table[static_cast<std::size_t>(h * low_pages + i)]);
      }
    }
  }
  [[nodiscard]] std::vector<std::byte> in_device_order() const {
    std::vector<std::byte> bytes = first.in_device_order();
    const std::vector<std::byte> more = low.in_device_order();
    bytes.insert(bytes.end(), more.begin(), more.end());
    return bytes;
  }
};

void check_slices(const spec::kv_format& format, bool tiers, const std::vector<int>& slices) {
  // Tokens: of the longest parts together, a multiple of 4.
  const int capacity = max_quantized + (tiers ? max_low + 2 : 4) + recent_capacity;
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const spec::kv_format& low_format = spec::format_of(spec::format_id::k4v2);
  seeded_values random(5);
  pooled_heads cache(format, spec::pages_for_tokens(format, max_quantized),
                     tiers ? spec::pages_for_tokens(low_format, max_low) : 0);
  std::vector<std::int32_t> num_quantized, num_low, num_recent, num_tokens;
  std::vector<half_bits> q, recent_k, recent_v;
  std::vector<float> out, state;
  std::vector<float> running(static_cast<std::size_t>(heads * capacity), 0.25f);
  const std::vector<float> running_before = running;
  for (int h = 0; h < heads; ++h) {
    const int kv_head = h % kv_heads;
    const int first = quantized_of[static_cast<std::size_t>(h / kv_heads)];
    const int quantized = kv_head == 0 ? first : kv_head == 1 ? first / 2 + 37 : kv_head * 5 % 80;
    // The longest low tier stands beside 129 tokens of the high one.
    const int of_low = !tiers ? 0 : h == 4 * kv_heads ? max_low : kv_head * 11 % 140;
    const int recent = h * 5 % (recent_capacity + 1);
    const auto of_q = random.normal_halves(ratio * head_dim, h % 2 == 0 ? 6 : 1);
    const auto k = random.normal_halves(recent_capacity * head_dim, 1),
               v = random.normal_halves(recent_capacity * head_dim, 1);
    const auto fill = [&](const spec::kv_format& f, int tokens, page_pool& pool) {
      reference::append_tokens(
          f, head_dim, random.normal_halves(std::int64_t{tokens} * head_dim, 1),
          random.normal_halves(std::int64_t{tokens} * head_dim, 1), 0, pool.writable());
    };
    fill(format, quantized, cache.first.head(h));
    fill(low_format, of_low, cache.low.head(h));
    const auto pages = cache.first.head(h).readable(), low_pages = cache.low.head(h).readable();
    const auto filled = static_cast<std::size_t>(recent * head_dim);
    const reference::decode_input input{format.id,
                                        head_dim,
                                        ratio,
                                        scale,
                                        of_q,
                                        quantized,
                                        pages,
                                        recent,
                                        std::span(k).first(filled),
                                        std::span(v).first(filled),
                                        of_low,
                                        low_pages};
    const reference::decode_output expected = reference::decode_attention({&input, 1}).front();
    const auto mine =
        std::span(running).subspan(static_cast<std::size_t>(h * capacity),
                                   static_cast<std::size_t>(quantized + of_low + recent));
    for (int step = 0; step < steps; ++step)
      reference::update_scores({ratio, expected.scores, expected.state}, mine);
    q.insert(q.end(), of_q.begin(), of_q.end());
    recent_k.insert(recent_k.end(), k.begin(), k.end());
    recent_v.insert(recent_v.end(), v.begin(), v.end());
    out.insert(out.end(), expected.out.begin(), expected.out.end());
    state.insert(state.end(), expected.state.begin(), expected.state.end());
    num_quantized.push_back(quantized);
    num_low.push_back(of_low);
    num_recent.push_back(recent);
    num_tokens.push_back(quantized + of_low + recent);
  }

  const auto opened = open_test_device();
  regridding_device regridding(*opened);  // so that heads of several splits leave partials
  regridding.grid = 100;
  gpu::device* const dev = &regridding;
  const device_array<std::byte> pages(*dev, cache.in_device_order());
  const device_array<std::int32_t> table(*dev, cache.table), quantized(*dev, num_quantized),
      low(*dev, num_low), recent(*dev, num_recent), tokens(*dev, num_tokens);
  const device_array<half_bits> queries(*dev, q), keys(*dev, recent_k), values(*dev, recent_v);
  for (const int slice : slices) {
    const std::string name = fmt::format("{}, slices of {}", tiers ? "tiers" : format.name, slice);
    const int largest = std::min(slice, batch);
    const device_array<float> device_running(*dev, running_before),
        scores(*dev, std::vector<float>(
                         static_cast<std::size_t>(largest * kv_heads * ratio * capacity), -1.0f));
    gpu::significance_args a{};
    a.decode.format = format.id;
    a.decode.head_dim = head_dim;
    a.decode.batch = batch;
    a.decode.kv_heads = kv_heads;
    a.decode.gqa_ratio = ratio;
    a.decode.softmax_scale = scale;
    a.decode.max_quantized = max_quantized;
    if (tiers) {
      a.decode.max_low = max_low;
      a.decode.num_low = low.get();
    }
    a.decode.q = queries.get();
    a.decode.page_table = table.get();
    a.decode.max_pages = static_cast<int>(cache.max_pages);
    a.decode.pages = pages.get();
    a.decode.num_quantized = quantized.get();
    a.decode.num_recent = recent.get();
    a.decode.recent_k = keys.get();
    a.decode.recent_v = values.get();
    a.decode.recent_capacity = recent_capacity;
    a.decode.scores = scores.get();
    a.decode.score_capacity = capacity;
    gpu::decode_args of_slice = a.decode;
    of_slice.batch = largest;
    const std::int64_t scratch = gpu::decode_workspace_bytes(of_slice),
                       tickets = gpu::decode_ticket_bytes(of_slice);
    std::vector<std::byte> bytes(static_cast<std::size_t>(scratch), std::byte{0xcd});
    std::fill_n(bytes.begin(), tickets, std::byte{0});
    const device_array<std::byte> workspace(*dev, bytes);
    a.decode.workspace = workspace.get();
    a.slice = slice;
    a.num_tokens = tokens.get();
    a.max_tokens = capacity;
    a.running = device_running.get();
    a.running_capacity = capacity;
    for (int step = 0; step < steps; ++step) {
      const device_array<float> device_out(*dev, std::vector<float>(out.size(), -1.0f)),
          device_state(*dev, std::vector<float>(state.size(), -1.0f));
      a.decode.out = device_out.get();
      a.decode.state = device_state.get();
      gpu::decode_with_significance(*dev, a);
      dev->synchronize();
      BOOST_TEST((bits_of(device_out.read()) == bits_of(out)), name << ", step " << step);
      BOOST_TEST((bits_of(device_state.read()) == bits_of(state)), name << ", step " << step);
      BOOST_TEST((device_out.canaries_live() && device_state.canaries_live()), name);
    }
    BOOST_TEST((bits_of(device_running.read()) == bits_of(running)), name);
    BOOST_TEST(
        (workspace.canaries_live() && scores.canaries_live() && device_running.canaries_live()),
        name);
  }
}

BOOST_AUTO_TEST_CASE(every_slice) {
  check_slices(spec::format_of(spec::format_id::k4v2), false, {1, 2, 3, 4, 5, 9});
}
// One sequence a slice, a smaller last slice, the whole batch.
BOOST_AUTO_TEST_CASE(slices_of_two_tiers) {
  check_slices(spec::format_of(spec::format_id::k8v4), true, {1, 3, 9});
}

}  // namespace
}  // namespace kvproof::tests
