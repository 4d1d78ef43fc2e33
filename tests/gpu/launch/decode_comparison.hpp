// Heads drawn on the host, what the reference makes of their decode attention, and runs of the
// decode kernels on them in the emulator: the same bits of out, state and scores, and nothing else
// is written.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device/emulator/emulator.hpp"
#include "reference/attention/decode_attention.hpp"
#include "tests/gpu/launch/decode_launch.hpp"
#include "tests/reference/formats/page_pool.hpp"

namespace kvproof::tests {
inline constexpr int recent_capacity = 128;
// A prime: with 2^17 the keys of head_dim 64 would repeat every 2048 tokens, all splits would be
// alike and the merge of splits would see factors of 1 only.
inline constexpr std::int64_t pool_size = 131071;

struct head_lengths {
  std::int64_t quantized, low, recent;
};

struct decode_shape {
  spec::format_id format;
  int head_dim;
  int ratio;
  int kv_heads;
  std::vector<head_lengths> lengths;  // [batch][kv_heads]
  bool tiers = false;                 // format is k8v4, and low tokens are k4v2

  [[nodiscard]] std::size_t heads() const { return lengths.size(); }
  [[nodiscard]] int batch() const { return static_cast<int>(lengths.size()) / kv_heads; }
  [[nodiscard]] std::int64_t longest(std::int64_t head_lengths::*part) const {
    std::int64_t most = 0;
    for (const head_lengths& n : lengths) most = std::max(most, n.*part);
    return most;
  }
  // Of a head, of both tiers.
  [[nodiscard]] std::int64_t pages(const head_lengths& n) const {
    return spec::pages_for_tokens(spec::format_of(format), n.quantized) +
           spec::pages_for_tokens(spec::format_of(spec::format_id::k4v2), n.low);
  }
};

// One part: every combination is one KV head.
inline decode_shape every_pair(spec::format_id format, int head_dim, int ratio,
                               const std::vector<std::int64_t>& quantized,
                               const std::vector<std::int64_t>& recent) {
  decode_shape s{format, head_dim, ratio, static_cast<int>(recent.size()), {}};
  for (const std::int64_t n : quantized) {
    for (const std::int64_t r : recent) s.lengths.push_back({n, 0, r});
  }
  return s;
}

inline bool same_float(std::uint32_t a, std::uint32_t b) {
  const auto is_nan = [](std::uint32_t x) { return (x & 0x7fffffffu) > 0x7f800000u; };
  return a == b || (is_nan(a) && is_nan(b));
}

class decode_comparison {
 public:
  // `spoil` may change keys and values ([tokens][head_dim]) of a head before they are quantized.
  using spoiler = void (*)(std::size_t head, int head_dim, std::vector<half_bits>& k,
                           std::vector<half_bits>& v);
  explicit decode_comparison(decode_shape s, std::uint64_t seed, spoiler spoil = nullptr)
      : s_(std::move(s)) {
    seeded_values random(seed);
    // A row of the table is as long as the head with most pages needs: there the tiers meet.
    max_pages_ = 1;
    for (const head_lengths& n : s_.lengths) max_pages_ = std::max(max_pages_, s_.pages(n));
    page_bytes_ =
        static_cast<std::size_t>(spec::page_size_bytes(spec::format_of(s_.format), s_.head_dim));

    // Page ids in no order; a page that nobody owns stays poison, a table entry behind the end of a
    // tier is no page at all.
    std::vector<std::int32_t> ids(s_.heads() * static_cast<std::size_t>(max_pages_));
    std::iota(ids.begin(), ids.end(), 0);
    for (std::size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[static_cast<std::size_t>(random.below(std::int64_t(i)))]);
    pages_.assign(ids.size() * page_bytes_, std::byte{0xcd});
    table_.assign(ids.size(), -1);

    const std::vector<half_bits> values = random.normal_halves(pool_size);
    for (std::size_t head = 0; head < s_.heads(); ++head) {
      const head_lengths n = s_.lengths[head];
      const auto cut = [&] {  // a piece of the values, another one each time
        std::vector<half_bits> piece(
            static_cast<std::size_t>((n.quantized + n.low + n.recent) * s_.head_dim));
        std::size_t from = static_cast<std::size_t>(random.below(pool_size));
        for (half_bits& x : piece) x = values[from++ % values.size()];
        return piece;
      };
      std::vector<half_bits> k = cut(), v = cut();
      if (spoil != nullptr) spoil(head, s_.head_dim, k, v);
      // Sharp queries move the maximum often and flush many probabilities to 0.
      q_.push_back(
          random.normal_halves(std::int64_t{s_.ratio} * s_.head_dim, head % 3 == 0 ? 8 : 1));

      pools_.push_back(filled(s_.format, k, v, 0, n.quantized));
      low_pools_.push_back(filled(spec::format_id::k4v2, k, v, n.quantized, n.low));
      const std::size_t row = head * static_cast<std::size_t>(max_pages_);
      std::size_t entry = row;
      for (const std::vector<std::byte>& page : pools_.back().bytes) place(ids, entry++, page);
      entry = row + static_cast<std::size_t>(max_pages_);
      for (const std::vector<std::byte>& page : low_pools_.back().bytes) place(ids, --entry, page);
      const std::ptrdiff_t first_recent = (n.quantized + n.low) * s_.head_dim;
      recent_k_.emplace_back(k.begin() + first_recent, k.end());
      recent_v_.emplace_back(v.begin() + first_recent, v.end());
    }

    std::vector<std::vector<std::span<const std::byte>>> spans, low_spans;
    for (const page_pool& pool : pools_) spans.push_back(pool.readable());
    for (const page_pool& pool : low_pools_) low_spans.push_back(pool.readable());
    std::vector<reference::decode_input> inputs;
    for (std::size_t h = 0; h < s_.heads(); ++h) {
      const head_lengths& n = s_.lengths[h];
      inputs.push_back({s_.format, s_.head_dim, s_.ratio, scale(), q_[h], n.quantized, spans[h],
                        n.recent, recent_k_[h], recent_v_[h], n.low, low_spans[h]});
    }
    expected_ = reference::decode_attention(inputs);
  }

  [[nodiscard]] const std::vector<reference::decode_output>& expected() const { return expected_; }

  // One launch; `grid` 0 is the launcher's own.
  // `equal_lengths`: which of the two ways to share work; bits do not depend on it.
  void run(std::uint32_t grid, bool with_scores, bool equal_lengths = true,
           gpu::emulator::warp_order order = gpu::emulator::warp_order::round_robin) const {
    const std::string name = fmt::format("{} d{} g{} grid {} scores {} equal {}",
                                         s_.tiers ? "tiers" : spec::format_of(s_.format).name,
                                         s_.head_dim, s_.ratio, grid, with_scores, equal_lengths);
    gpu::emulator::options options;
    options.order = order;
    const auto emulator = gpu::emulator::open(options);
    regridding_device dev(*emulator);
    dev.grid = grid;

    const decode_heads launched = launched_heads();
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

  // What a format does not use of its pages is NaN in every way to read it.
  [[nodiscard]] page_pool filled(spec::format_id id, const std::vector<half_bits>& k,
                                 const std::vector<half_bits>& v, std::int64_t first,
                                 std::int64_t count) const {
    const spec::kv_format& format = spec::format_of(id);
    page_pool pool(format, s_.head_dim, spec::pages_for_tokens(format, count));
    const auto rows = [&](const std::vector<half_bits>& x) {
      return std::span(x).subspan(static_cast<std::size_t>(first * s_.head_dim),
                                  static_cast<std::size_t>(count * s_.head_dim));
    };
    reference::append_tokens(format, s_.head_dim, rows(k), rows(v), 0, pool.writable());
    pool.fill_unused(std::byte{0xff});
    return pool;
  }

  // A page, and its id as an entry of the table.
  void place(const std::vector<std::int32_t>& ids, std::size_t entry,
             const std::vector<std::byte>& page) {
    BOOST_REQUIRE(table_[entry] == -1);
    table_[entry] = ids[entry];
    std::ranges::copy(
        page, pages_.begin() + std::ptrdiff_t(static_cast<std::size_t>(ids[entry]) * page_bytes_));
  }

  [[nodiscard]] decode_heads launched_heads() const {
    decode_heads h{.format = s_.format,
                   .head_dim = s_.head_dim,
                   .ratio = s_.ratio,
                   .batch = s_.batch(),
                   .kv_heads = s_.kv_heads,
                   .scale = scale(),
                   .q = {},
                   .pages = pages_,
                   .table = table_,
                   .max_pages = max_pages_,
                   .max_quantized = s_.longest(&head_lengths::quantized),
                   .num_quantized = {},
                   .num_recent = {},
                   .max_low = s_.longest(&head_lengths::low),
                   .num_low = {},
                   .recent_capacity = recent_capacity,
                   .recent_k = {},
                   .recent_v = {},
                   .score_capacity = 0};
    h.score_capacity = h.max_quantized + h.max_low + recent_capacity + 3;
    const std::size_t row = std::size_t{recent_capacity} * static_cast<std::size_t>(s_.head_dim);
    h.recent_k.assign(s_.heads() * row, half_nan);
    h.recent_v = h.recent_k;
    for (std::size_t i = 0; i < s_.heads(); ++i) {
      h.q.insert(h.q.end(), q_[i].begin(), q_[i].end());
      std::ranges::copy(recent_k_[i], h.recent_k.begin() + std::ptrdiff_t(i * row));
      std::ranges::copy(recent_v_[i], h.recent_v.begin() + std::ptrdiff_t(i * row));
      h.num_quantized.push_back(static_cast<std::int32_t>(s_.lengths[i].quantized));
      h.num_recent.push_back(static_cast<std::int32_t>(s_.lengths[i].recent));
      if (s_.tiers) h.num_low.push_back(static_cast<std::int32_t>(s_.lengths[i].low));
    }
    return h;
  }

  template <class Expected>
  void check(const std::string& name, const std::vector<std::uint32_t>& actual,
             const Expected& expected) const {
    const std::size_t per_head = actual.size() / s_.heads();
    std::size_t different = 0;
    std::string first;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::size_t head = i / per_head;
      const std::uint32_t e = expected(head, i % per_head);
      if (same_float(actual[i], e)) continue;
      if (different++ == 0) {
        const head_lengths& n = s_.lengths[head];
        first = fmt::format(
            "first: {} quantized + {} low + {} recent tokens, element {}: {:08x}, not {:08x}",
            n.quantized, n.low, n.recent, i % per_head, actual[i], e);
      }
    }
    BOOST_TEST(different == 0u,
               name << ": " << different << " of " << actual.size() << " differ; " << first);
  }

  decode_shape s_;
  std::int64_t max_pages_ = 0;
  std::size_t page_bytes_ = 0;
  std::vector<std::byte> pages_;
  std::vector<std::int32_t> table_;
  std::vector<page_pool> pools_, low_pools_;
  std::vector<std::vector<half_bits>> q_, recent_k_, recent_v_;
  std::vector<reference::decode_output> expected_;
};

}  // namespace kvproof::tests
