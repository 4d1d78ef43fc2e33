// The reference's cache and its events, see cache_state.hpp.
#include "verify/cache_state.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reference/attention/decode_attention.hpp"
#include "reference/formats/demotion.hpp"
#include "reference/formats/page_codec.hpp"
#include "verify/fenced_buffer.hpp"

namespace kvproof::verify {
namespace {

constexpr half_bits unwritten_recent = 0x7e00;  // NaN: shows if it takes part in a sum

// Pages of each head that its tokens need.
std::vector<int> pages_for(spec::format_id format, const std::vector<std::int64_t>& tokens) {
  std::vector<int> pages;
  for (const std::int64_t n : tokens)
    pages.push_back(static_cast<int>(spec::pages_for_tokens(spec::format_of(format), n)));
  return pages;
}

std::vector<int> quantized_pages(const workload& w) {
  std::vector<std::int64_t> total(static_cast<std::size_t>(w.heads()));
  for (const event& e : w.events) {
    for (std::size_t h = 0; h < e.quantize.size(); ++h) total[h] += e.quantize[h];
  }
  return pages_for(w.format, total);
}

std::vector<int> low_pages(const workload& w) {
  std::vector<std::int64_t> total(static_cast<std::size_t>(w.heads()));
  for (const event& e : w.events) {
    for (std::size_t h = 0; h < e.quantize_low.size(); ++h) total[h] += e.quantize_low[h];
    for (std::size_t h = 0; h < e.demote.num_tokens.size(); ++h) {
      const std::int64_t n = e.demote.num_tokens[h];
      total[h] = e.demote.replace_from.empty() ? total[h] + n
                                               : std::max(total[h], e.demote.replace_from[h] + n);
    }
  }
  return pages_for(spec::format_id::k4v2, total);
}

// A pool for each format, all heads with as many pages as one needs; tiers share a pool.
tiered_caches empty_caches(const workload& w) {
  const std::vector<int> high = quantized_pages(w), low = low_pages(w);
  if (w.tiers) return make_tiers(w.head_dim, high, low, w.seed);
  const auto most = [](const std::vector<int>& pages, int least) {
    for (const int n : pages) least = std::max(least, n);
    return least;
  };
  return {{w.format, w.head_dim, w.heads(), most(high, 1), w.seed, "page_ids"},
          {spec::format_id::k4v2, w.head_dim, w.heads(), most(low, 0), w.seed, "low page_ids"}};
}

void append_bits(std::vector<std::uint32_t>& to, const std::vector<float>& x) {
  const std::size_t at = to.size();
  to.resize(at + x.size());
  if (!x.empty()) std::memcpy(to.data() + at, x.data(), x.size() * 4);
}

}  // namespace

cache_state::cache_state(const workload& w) : cache_state(w, empty_caches(w)) {}

cache_state::cache_state(const workload& w, tiered_caches caches)
    : work(w),
      quantized(std::move(caches.high)),
      low(std::move(caches.low)),
      source_rows(static_cast<std::size_t>(w.heads()), 0) {
  num_recent.assign(static_cast<std::size_t>(w.heads()), 0);
  const auto recent = static_cast<std::size_t>(w.heads() * w.recent_capacity * w.head_dim);
  recent_k.assign(recent, unwritten_recent);
  recent_v.assign(recent, unwritten_recent);
}

void cache_state::append(const event& e) {
  quantize_first.clear();
  for (std::int64_t h = 0; h < work.heads(); ++h) {
    const auto head = static_cast<std::size_t>(h);
    // Source rows are quantized first (a prompt), then the rest joins the recent part.
    if (!e.from_recent) quantize_first.push_back(source_rows[head]);
    if (!e.from_recent && e.gather.empty()) source_rows[head] += e.quantize[head];
    for (int i = 0; i < e.append[head]; ++i, ++source_rows[head]) {
      const std::int64_t to = (h * work.recent_capacity + num_recent[head]++) * work.head_dim;
      const std::int64_t from = source_offset(h, source_rows[head]);
      std::copy_n(work.k.begin() + from, work.head_dim, recent_k.begin() + to);
      std::copy_n(work.v.begin() + from, work.head_dim, recent_v.begin() + to);
    }
    if (!e.quantize_low.empty()) {
      source_rows[head] = std::max(source_rows[head], e.low_first_row + e.quantize_low[head]);
    }
  }
}

void cache_state::quantize(const event& e) {
  const spec::kv_format& format = spec::format_of(work.format);
  const std::int64_t d = work.head_dim;
  for (std::int64_t h = 0; h < work.heads(); ++h) {
    const auto head = static_cast<std::size_t>(h);
    const std::int64_t n = e.quantize[head];
    if (n == 0) continue;
    std::vector<half_bits> k(static_cast<std::size_t>(n * d)), v(k.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::vector<half_bits>& from_k = e.from_recent ? recent_k : work.k;
      const std::vector<half_bits>& from_v = e.from_recent ? recent_v : work.v;
      const std::int64_t row = e.gather.empty()
                                   ? quantize_first[head] + i
                                   : e.gather[static_cast<std::size_t>(h * work.list_capacity + i)];
      const std::int64_t at =
          e.from_recent ? (h * work.recent_capacity + i) * d : source_offset(h, row);
      std::copy_n(from_k.begin() + at, d, k.begin() + i * d);
      std::copy_n(from_v.begin() + at, d, v.begin() + i * d);
    }
    reference::append_tokens(format, work.head_dim, k, v, quantized.num_tokens[head],
                             quantized.pages_of(h));
    quantized.num_tokens[head] += static_cast<std::int32_t>(n);
    if (e.from_recent) num_recent[head] = 0;
  }
}

void cache_state::quantize_low(const event& e) {
  const std::int64_t d = work.head_dim;
  for (std::int64_t h = 0; h < work.heads(); ++h) {
    const auto head = static_cast<std::size_t>(h);
    std::vector<half_bits> k, v;
    for (std::int64_t i = 0; i < e.quantize_low[head]; ++i) {
      const std::int64_t at = source_offset(h, e.low_first_row + i);
      k.insert(k.end(), work.k.begin() + at, work.k.begin() + at + d);
      v.insert(v.end(), work.v.begin() + at, work.v.begin() + at + d);
    }
    reference::append_tokens(spec::format_of(low.format), work.head_dim, k, v, low.num_tokens[head],
                             low.pages_of(h));
    low.num_tokens[head] += e.quantize_low[head];
  }
}

std::vector<std::int32_t> cache_state::demoted_first(const demotion& d) const {
  return d.replace_from.empty() ? low.num_tokens : d.replace_from;
}

void cache_state::demote(const event& e) {
  const demotion& d = e.demote;
  const std::vector<std::int32_t> first = demoted_first(d);
  for (std::int64_t h = 0; h < work.heads(); ++h) {
    const auto head = static_cast<std::size_t>(h);
    const auto list = std::span(d.tokens).subspan(static_cast<std::size_t>(h * work.list_capacity),
                                                  static_cast<std::size_t>(d.num_tokens[head]));
    std::vector<std::span<const std::byte>> from;
    for (const std::span<std::byte> page : quantized.pages_of(h)) from.emplace_back(page);
    reference::demote_tokens(
        work.head_dim, from, list, first[head], low.pages_of(h),
        d.replace_from.empty() ? reference::demote_mode::append : reference::demote_mode::replace);
    low.num_tokens[head] =
        std::max(low.num_tokens[head], first[head] + static_cast<std::int32_t>(list.size()));
  }
}

expected_attention cache_state::attend(const event& e) const {
  std::vector<std::vector<std::span<const std::byte>>> pages(
      static_cast<std::size_t>(work.heads())),
      low_pages(pages.size());
  std::vector<reference::decode_input> inputs;
  for (std::int64_t h = 0; h < work.heads(); ++h) {
    const auto head = static_cast<std::size_t>(h);
    const std::int64_t nq = quantized.num_tokens[head], nr = num_recent[head];
    for (std::int64_t p = 0; p < spec::pages_for_tokens(spec::format_of(work.format), nq); ++p)
      pages[head].push_back(quantized.page(h, p));
    reference::decode_input input{};
    input.format = work.format;
    input.head_dim = work.head_dim;
    input.gqa_ratio = work.gqa_ratio;
    input.softmax_scale = work.softmax_scale;
    const std::int64_t group = std::int64_t{work.gqa_ratio} * work.head_dim;
    input.q = std::span(e.q).subspan(static_cast<std::size_t>(h * group),
                                     static_cast<std::size_t>(group));
    input.num_quantized = nq;
    input.pages = pages[head];
    if (work.tiers) {
      input.num_low = low.num_tokens[head];
      for (std::int64_t p = 0; p < low.num_pages[head]; ++p)
        low_pages[head].push_back(low.page(h, p));
      input.low_pages = low_pages[head];
    }
    input.num_recent = nr;
    const auto at = static_cast<std::size_t>(h * work.recent_capacity * work.head_dim);
    const auto size = static_cast<std::size_t>(nr * work.head_dim);
    input.recent_k = std::span(recent_k).subspan(at, size);
    input.recent_v = std::span(recent_v).subspan(at, size);
    inputs.push_back(input);
  }
  expected_attention expected;
  const auto row = static_cast<std::size_t>(score_capacity() * work.gqa_ratio);
  if (work.with_scores) expected.scores.assign(inputs.size() * row, poison_word);
  const std::vector<reference::decode_output> heads = reference::decode_attention(inputs);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    append_bits(expected.out, heads[h].out);
    append_bits(expected.state, heads[h].state);
    if (work.with_scores && !heads[h].scores.empty()) {
      std::memcpy(expected.scores.data() + h * row, heads[h].scores.data(),
                  heads[h].scores.size() * 4);
    }
  }
  return expected;
}

std::int64_t cache_state::score_elements() const {
  std::int64_t tokens = 0;
  for (std::size_t h = 0; h < num_recent.size(); ++h)
    tokens += quantized.num_tokens[h] + num_recent[h] + (work.tiers ? low.num_tokens[h] : 0);
  return work.with_scores ? tokens * work.gqa_ratio : 0;
}

std::int64_t cache_state::q_heads() const { return std::int64_t{work.kv_heads} * work.gqa_ratio; }

std::int64_t cache_state::score_capacity() const {
  return quantized.most_tokens() + (work.tiers ? low.most_tokens() : 0) + work.recent_capacity;
}

std::int64_t cache_state::source_offset(std::int64_t head, std::int64_t row) const {
  const std::int64_t sequence = head / work.kv_heads;
  return ((sequence * work.source_tokens + row) * work.kv_heads + head % work.kv_heads) *
         work.head_dim;
}

}  // namespace kvproof::verify
