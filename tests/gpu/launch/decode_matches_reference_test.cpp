// The decode kernels, run in the emulator, equal the reference bit for bit: outputs, state, scores;
// for any grid; and write nothing else.
#include <fmt/format.h>

#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "gpu/device/emulator/emulator.hpp"
#include "reference/attention/decode_attention.hpp"
#include "tests/gpu/launch/decode_launch.hpp"
#include "tests/reference/formats/page_pool.hpp"

namespace kvproof::tests {
namespace {

constexpr int recent_capacity = 128;
// A prime: with 2^17 the keys of head_dim 64 would repeat every 2048 tokens, all splits would be
// alike and the merge of splits would see factors of 1 only.
constexpr std::int64_t pool_size = 131071;

struct shape {
  spec::format_id format;
  int head_dim;
  int ratio;
  std::vector<std::int64_t> quantized, recent;  // lengths: every combination is one KV head

  [[nodiscard]] int batch() const { return static_cast<int>(quantized.size()); }
  [[nodiscard]] int kv_heads() const { return static_cast<int>(recent.size()); }
  [[nodiscard]] std::int64_t heads() const { return std::int64_t{batch()} * kv_heads(); }
  [[nodiscard]] std::int64_t num_quantized(std::int64_t head) const {
    return quantized[static_cast<std::size_t>(head / kv_heads())];
  }
  [[nodiscard]] std::int64_t num_recent(std::int64_t head) const {
    return recent[static_cast<std::size_t>(head % kv_heads())];
  }
  [[nodiscard]] std::int64_t max_quantized() const {
    return *std::max_element(quantized.begin(), quantized.end());
  }
};

bool same(std::uint32_t a, std::uint32_t b) {
  const auto is_nan = [](std::uint32_t x) { return (x & 0x7fffffffu) > 0x7f800000u; };
  return a == b || (is_nan(a) && is_nan(b));
}

// Heads on the host, what the reference makes of them, and runs of the kernel on them.
class comparison {
 public:
  // `spoil` may change keys and values ([tokens][head_dim]) of a head before they are quantized.
  using spoiler = void (*)(std::int64_t head, int head_dim, std::vector<half_bits>& k,
                           std::vector<half_bits>& v);
  explicit comparison(const shape& s, std::uint64_t seed, spoiler spoil = nullptr) : s_(s) {
    const spec::kv_format& format = spec::format_of(s.format);
    seeded_values random(seed);
    max_pages_ = std::max<std::int64_t>(spec::pages_for_tokens(s.max_quantized()), 1);
    const std::int64_t page_bytes = spec::page_size_bytes(format, s.head_dim);

    // Page ids in no order; a page that nobody owns stays poison, a table entry behind the end is
    // no page at all.
    std::vector<std::int32_t> ids(static_cast<std::size_t>(s.heads() * max_pages_));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[static_cast<std::size_t>(random.below(std::int64_t(i)))]);
    pages_.assign(ids.size() * static_cast<std::size_t>(page_bytes), std::byte{0xcd});
    table_.assign(ids.size(), -1);

    const std::vector<half_bits> values = random.normal_halves(pool_size);
    for (std::int64_t head = 0; head < s.heads(); ++head) {
      const std::int64_t quantized = s.num_quantized(head), recent = s.num_recent(head);
      const auto cut = [&] {  // a piece of the values, another one each time
        std::vector<half_bits> piece(static_cast<std::size_t>((quantized + recent) * s.head_dim));
        std::size_t from = static_cast<std::size_t>(random.below(pool_size));
        for (half_bits& x : piece) x = values[from++ % values.size()];
        return piece;
      };
      std::vector<half_bits> k = cut(), v = cut();
      if (spoil != nullptr) spoil(head, s.head_dim, k, v);
      // Sharp queries move the maximum often and flush many probabilities to 0.
      q_.push_back(random.normal_halves(std::int64_t{s.ratio} * s.head_dim, head % 3 == 0 ? 8 : 1));

      page_pool pool(format, s.head_dim, spec::pages_for_tokens(quantized));
      const auto size = static_cast<std::size_t>(quantized * s.head_dim);
      reference::append_tokens(format, s.head_dim, std::span(k).first(size),
                               std::span(v).first(size), 0, pool.writable());
      for (std::size_t page = 0; page < pool.bytes.size(); ++page) {
        const std::size_t entry = static_cast<std::size_t>(head * max_pages_) + page;
        table_[entry] = ids[entry];
        std::copy(pool.bytes[page].begin(), pool.bytes[page].end(),
                  pages_.begin() + ids[entry] * page_bytes);
      }
      pools_.push_back(std::move(pool));
      recent_k_.emplace_back(k.begin() + std::ptrdiff_t(size), k.end());
      recent_v_.emplace_back(v.begin() + std::ptrdiff_t(size), v.end());
    }

    std::vector<std::vector<std::span<const std::byte>>> spans;
    for (const page_pool& pool : pools_) spans.push_back(pool.readable());
    std::vector<reference::decode_input> inputs;
    for (std::int64_t head = 0; head < s.heads(); ++head) {
      const auto h = static_cast<std::size_t>(head);
      inputs.push_back({s.format, s.head_dim, s.ratio, scale(), q_[h], s.num_quantized(head),
                        spans[h], s.num_recent(head), recent_k_[h], recent_v_[h]});
    }
    expected_ = reference::decode_attention(inputs);
  }

  [[nodiscard]] const std::vector<reference::decode_output>& expected() const { return expected_; }

  // One launch; `grid` 0 is the launcher's own.
  // `equal_lengths`: which of the two ways to share work; bits do not depend on it.
  void run(std::uint32_t grid, bool with_scores, bool equal_lengths = true,
           gpu::emulator::warp_order order = gpu::emulator::warp_order::round_robin) const {
    const std::string name =
        fmt::format("{} d{} g{} grid {} scores {} equal {}", spec::format_of(s_.format).name,
                    s_.head_dim, s_.ratio, grid, with_scores, equal_lengths);
    gpu::emulator::options options;
    options.order = order;
    const auto emulator = gpu::emulator::open(options);
    regridding_device dev(*emulator);
    dev.grid = grid;

    const auto heads = static_cast<std::size_t>(s_.heads());
    const auto dim = static_cast<std::size_t>(s_.head_dim);
    std::vector<half_bits> q;
    for (const auto& row : q_) q.insert(q.end(), row.begin(), row.end());
    std::vector<half_bits> recent_k(heads * recent_capacity * dim, half_nan), recent_v = recent_k;
    std::vector<std::int32_t> num_quantized, num_recent;
    for (std::size_t h = 0; h < heads; ++h) {
      const auto to = static_cast<std::ptrdiff_t>(h * recent_capacity * dim);
      std::copy(recent_k_[h].begin(), recent_k_[h].end(), recent_k.begin() + to);
      std::copy(recent_v_[h].begin(), recent_v_[h].end(), recent_v.begin() + to);
      num_quantized.push_back(int(s_.num_quantized(std::int64_t(h))));
      num_recent.push_back(int(s_.num_recent(std::int64_t(h))));
    }
    const decode_heads launched{.format = s_.format,
                                .head_dim = s_.head_dim,
                                .ratio = s_.ratio,
                                .batch = s_.batch(),
                                .kv_heads = s_.kv_heads(),
                                .scale = scale(),
                                .q = std::move(q),
                                .pages = pages_,
                                .table = table_,
                                .max_pages = max_pages_,
                                .max_quantized = s_.max_quantized(),
                                .num_quantized = std::move(num_quantized),
                                .num_recent = std::move(num_recent),
                                .recent_capacity = recent_capacity,
                                .recent_k = std::move(recent_k),
                                .recent_v = std::move(recent_v),
                                .score_capacity = s_.max_quantized() + recent_capacity + 3};
    const decode_results actual = launch_decode(dev, launched, with_scores, equal_lengths, name);

    check(name + " out", actual.out, [&](std::size_t h, std::size_t i) -> std::uint32_t {
      return std::bit_cast<std::uint32_t>(expected_[h].out[i]);
    });
    check(name + " state", actual.state, [&](std::size_t h, std::size_t i) -> std::uint32_t {
      return std::bit_cast<std::uint32_t>(expected_[h].state[i]);
    });
    check(name + " scores", actual.scores, [&](std::size_t h, std::size_t i) -> std::uint32_t {
      return with_scores && i < expected_[h].scores.size()
                 ? std::bit_cast<std::uint32_t>(expected_[h].scores[i])
                 : decode_poison;
    });
  }

 private:
  [[nodiscard]] float scale() const { return 1 / std::sqrt(static_cast<float>(s_.head_dim)); }

  template <class Expected>
  void check(const std::string& name, const std::vector<std::uint32_t>& actual,
             const Expected& expected) const {
    const std::size_t per_head = actual.size() / static_cast<std::size_t>(s_.heads());
    std::size_t different = 0;
    std::string first;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::size_t head = i / per_head;
      const std::uint32_t e = expected(head, i % per_head);
      if (same(actual[i], e)) continue;
      if (different++ == 0) {
        first =
            fmt::format("first: {} quantized + {} recent tokens, element {}: {:08x}, not {:08x}",
                        s_.num_quantized(std::int64_t(head)), s_.num_recent(std::int64_t(head)),
                        i % per_head, actual[i], e);
      }
    }
    BOOST_TEST(different == 0u,
               name << ": " << different << " of " << actual.size() << " differ; " << first);
  }

  shape s_;
  std::int64_t max_pages_ = 0;
  std::vector<std::byte> pages_;
  std::vector<std::int32_t> table_;
  std::vector<page_pool> pools_;
  std::vector<std::vector<half_bits>> q_, recent_k_, recent_v_;
  std::vector<reference::decode_output> expected_;
};

// Lengths about tiles, pages, recent blocks and splits; int2_g16 takes whole groups only.
shape lengths(spec::format_id format, int head_dim, int ratio) {
  const std::int64_t step = spec::format_of(format).token_granularity;
  std::vector<std::int64_t> quantized = {0, 1, 15, 16, 17, 64, 65, 127, 128, 129, 1000, 1025};
  for (std::int64_t& n : quantized) n = (n + step - 1) / step * step;
  quantized.erase(std::unique(quantized.begin(), quantized.end()), quantized.end());
  return {format, head_dim, ratio, quantized, {0, 1, 31, 32, 33, 127}};
}

void sweep(spec::format_id format, int head_dim) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const comparison c(lengths(format, head_dim, ratio),
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
    const shape s{format.id, 64, 3, {0, 16, 1008, 2064, 4096}, {0, 33}};
    const comparison c(s, 7);
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
    const shape s{format.id, 64, 2, {8176, 8192, 8208, 10256}, {0, 1}};
    const comparison c(s, 8);
    c.run(0, true);
    c.run(3, false, false);
  }
}

// More splits than a warp has lanes: the factors of the final merge take two rounds. The largest
// logits stand in the first split (head 0), in the last (head 1) or anywhere (head 2).
BOOST_AUTO_TEST_CASE(more_than_32_splits) {
  const comparison c(
      {spec::format_id::k4v2, 64, 2, {70000}, {1, 0, 2}}, 9,
      [](std::int64_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>&) {
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
    const shape s{format.id, 128, 4, {64, 208, 1040}, {0, 3}};
    const comparison c(
        s, 10,
        [](std::int64_t head, int head_dim, std::vector<half_bits>& k, std::vector<half_bits>& v) {
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
