// Shapes and lengths of the synthetic cases, see synthetic_cases.hpp.
#include "verify/synthetic_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "verify/drawn_workload.hpp"
#include "verify/hash.hpp"
#include "verify/synthetic_values.hpp"

namespace kvproof::verify {
namespace {

constexpr std::array<int, 8> gqa_ratios = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr std::array<int, 2> head_dims = {64, 128};
// Around every boundary of groups, tiles, pages and splits.
constexpr std::array<std::int64_t, 10> boundary_lengths = {0,   1,   15,  16,   17,
                                                           127, 128, 129, 1000, 1025};
// The same of tiers, whose pages hold 32 and 64 tokens. Not a multiple of 3.
constexpr std::array<std::int64_t, 13> tier_lengths = {0,  1,   31,  32,  33,   63,  64,
                                                       65, 127, 129, 200, 1000, 1025};
constexpr std::array<std::int64_t, 5> recent_lengths = {0, 1, 33, 127, 64};
constexpr std::array<std::int64_t, 4> long_lengths = {4096, 8192, 8193, 20000};
// 33 splits of the quantized part and the recent part.
constexpr std::int64_t splits34_tokens = 32 * 2048 + 112, splits34_recent = 5;

// Cases of many pages: how a grid cuts heads into splits.
struct split_lengths {
  std::string_view name;
  int gqa_ratio_64, gqa_ratio_128;
  bool equal_lengths;
  std::vector<std::int64_t> quantized, recent;
};
// The low tier beside these.
struct low_lengths {
  std::string_view name;
  std::vector<std::int64_t> low;
};
const std::array<low_lengths, 3> split_low = {{
    {"folded", {100, 8192, 9000}},
    {"whole_heads", {9000, 0, 130, 64, 33, 2100}},
    {"balanced", {0, 33, 9000, 0, 2048, 700}},
}};
const std::array<split_lengths, 3> split_cases = {{
    // Fewer heads than CTAs, of 9, 5 and 2 splits: several CTAs leave partials of a head, and some
    // run on into the next head, whose splits may have another length.
    {"folded", 2, 1, true, {8192, 9000, 100}, {40, 0, 3}},
    // As many heads as CTAs: a CTA streams whole heads, two of them of more than 32 pages a warp.
    {"whole_heads", 1, 2, true, {0, 9000, 33, 64, 130, 700}, {3, 0, 0, 70, 0, 1}},
    // Ranges of equal weight: they end inside long heads and span short and empty ones.
    {"balanced", 3, 5, false, {0, 9000, 33, 2048, 0, 5000}, {0, 3, 70, 0, 0, 127}},
}};

struct decode_shape {
  spec::format_id format;
  int head_dim;
  int gqa_ratio;
  value_regime regime;
  bool with_scores;
  bool equal_lengths;
  std::vector<std::int64_t> quantized,
      recent;                          // [batch], the same for both KV heads but for a shift
  std::vector<std::int64_t> low = {};  // likewise: tokens of the low tier; empty: one part
};

drawn_shape query_rows(const workload& w) {
  return {w.batch, 1, std::int64_t{w.kv_heads} * w.gqa_ratio, w.head_dim};
}

// Half of each head's low tokens are demoted from drawn tokens of its high tier, where it has one;
// the others are quantized, from the source rows behind all others.
void fill_low_tier(workload& w, event& e, const std::vector<std::int64_t>& low,
                   std::uint64_t seed) {
  constexpr int slack = 3;  // entries of a list that no head uses
  std::int32_t longest_list = 0;
  for (std::size_t h = 0; h < low.size(); ++h) {
    const auto demoted = static_cast<std::int32_t>(e.quantize[h] > 0 ? low[h] / 2 : 0);
    e.demote.num_tokens.push_back(demoted);
    e.quantize_low.push_back(static_cast<std::int32_t>(low[h]) - demoted);
    longest_list = std::max(longest_list, demoted);
  }
  w.list_capacity = longest_list + slack;
  e.demote.tokens.assign(low.size() * static_cast<std::size_t>(w.list_capacity), -1);
  for (std::size_t h = 0; h < low.size(); ++h) {
    for (std::int32_t i = 0; i < e.demote.num_tokens[h]; ++i) {
      const std::size_t at =
          h * static_cast<std::size_t>(w.list_capacity) + static_cast<std::size_t>(i);
      e.demote.tokens[at] = static_cast<std::int32_t>(hash_index(seed, "demoted", at) %
                                                      static_cast<std::uint64_t>(e.quantize[h]));
    }
  }
}

workload build_decode(const decode_shape& s, std::uint64_t seed) {
  const spec::kv_format& format = spec::format_of(s.format);
  std::int64_t source_tokens = 1;
  event e;
  e.name = "decode";
  e.attend = true;
  std::vector<std::int64_t> low;
  for (std::size_t b = 0; b < s.quantized.size(); ++b) {
    for (int h = 0; h < synthetic_kv_heads; ++h) {
      // The second head of a sequence takes the lengths of the next sequence: lengths differ by
      // head, too.
      const std::size_t from = (b + static_cast<std::size_t>(h)) % s.quantized.size();
      const std::int64_t n =
          s.quantized[from] / format.token_granularity * format.token_granularity;
      e.quantize.push_back(static_cast<std::int32_t>(n));
      e.append.push_back(static_cast<std::int32_t>(s.recent[from]));
      source_tokens = std::max(source_tokens, n + s.recent[from]);
      if (!s.low.empty()) low.push_back(s.low[from]);
    }
  }
  e.low_first_row = source_tokens;
  if (!low.empty()) source_tokens += *std::ranges::max_element(low);
  workload w = drawn_workload(
      {s.format, s.head_dim, s.gqa_ratio, s.quantized.size(), source_tokens, s.regime}, seed);
  w.with_scores = s.with_scores;
  w.equal_lengths = s.equal_lengths;
  w.recent_capacity = 128;
  w.tiers = !low.empty();
  if (w.tiers) fill_low_tier(w, e, low, seed);
  e.q = draw(seed, "q", tensor::q, s.regime, format, query_rows(w));
  w.events.push_back(std::move(e));
  return w;
}

// Appends in pieces: the bytes must not depend on how a cache was filled.
workload build_quantize(spec::format_id id, int head_dim, value_regime regime, std::int64_t piece,
                        std::uint64_t seed) {
  const spec::kv_format& format = spec::format_of(id);
  constexpr std::int64_t tokens = 144;
  workload w = drawn_workload({id, head_dim, 1, 2, tokens, regime}, seed);
  const std::int64_t step =
      (piece + format.token_granularity - 1) / format.token_granularity * format.token_granularity;
  for (std::int64_t first = 0; first < tokens; first += step) {
    event e;
    e.name = fmt::format("append {}", first);
    const auto n = static_cast<std::int32_t>(std::min(step, tokens - first));
    e.quantize.assign(static_cast<std::size_t>(w.heads()), n);
    e.append.assign(static_cast<std::size_t>(w.heads()), 0);
    w.events.push_back(std::move(e));
  }
  return w;
}

std::string_view name_of_cache(const decode_shape& s) {
  return s.low.empty() ? spec::format_of(s.format).name : "tiers";
}

test_case decode_case(const decode_shape& shape, std::string_view suffix) {
  std::string id = fmt::format("decode/{}/d{}_g{}_{}", name_of_cache(shape), shape.head_dim,
                               shape.gqa_ratio, suffix);
  return {std::move(id), shape.format,
          [shape](std::uint64_t seed) { return build_decode(shape, seed); }, "",
          !shape.low.empty()};
}

test_case tier_boundaries(int head_dim, int gqa_ratio) {
  decode_shape s{spec::format_id::k8v4, head_dim,           gqa_ratio, value_regime::normal,
                 gqa_ratio != 2,        gqa_ratio % 3 != 0, {},        {}};
  // Every length in either tier, beside one from elsewhere in the list.
  constexpr std::size_t n = tier_lengths.size();
  for (std::size_t i = 0; i < n; ++i) {
    s.quantized.push_back(tier_lengths[i]);
    s.low.push_back(tier_lengths[(i * 3 + static_cast<std::size_t>(gqa_ratio)) % n]);
    s.recent.push_back(
        recent_lengths[(i + static_cast<std::size_t>(gqa_ratio)) % recent_lengths.size()]);
  }
  return decode_case(s, s.with_scores ? "boundaries" : "boundaries_noscores");
}

// Prompt tokens of the four (sequence, KV head) of a stream: empty, a tile begun, one token before
// a page, and in the second page.
constexpr std::array<std::int32_t, 4> stream_prompts = {0, 15, 63, 72};

struct stream_shape {
  spec::format_id format;
  int head_dim;
  int gqa_ratio;
  int flush_length;  // the recent part is quantized when it holds this many tokens
  int steps;
};

workload build_stream(const stream_shape& s, std::uint64_t seed) {
  const auto regime = value_regime::normal;
  const spec::kv_format& format = spec::format_of(s.format);
  workload w =
      drawn_workload({s.format, s.head_dim, s.gqa_ratio, stream_prompts.size() / synthetic_kv_heads,
                      *std::ranges::max_element(stream_prompts) + s.steps, regime},
                     seed);
  w.recent_capacity = std::max(s.flush_length, spec::tokens_per_tile);

  const auto heads = static_cast<std::size_t>(w.heads());
  const int whole = std::min(s.flush_length, spec::tokens_per_tile);
  std::vector<std::int32_t> recent(heads);
  event prompt{"prompt", {}, {}, false, false, {}};
  for (std::size_t h = 0; h < heads; ++h) {
    recent[h] = stream_prompts[h] % whole;
    prompt.append.push_back(recent[h]);
    prompt.quantize.push_back(stream_prompts[h] - recent[h]);
  }
  w.events.push_back(std::move(prompt));
  for (int step = 0; step < s.steps; ++step) {
    event e{fmt::format("step {}", step), {}, {}, false, true, {}};
    e.append.assign(heads, 1);
    e.quantize.assign(heads, 0);
    for (std::size_t h = 0; h < heads; ++h) {
      if (++recent[h] < s.flush_length) continue;
      e.quantize[h] = recent[h];
      recent[h] = 0;
      e.from_recent = true;
    }
    e.q = draw(seed, fmt::format("q {}", step), tensor::q, regime, format, query_rows(w));
    w.events.push_back(std::move(e));
  }
  return w;
}

}  // namespace

std::vector<test_case> short_cases() {
  const std::span<const std::string_view> regimes = value_regime_names();
  std::vector<test_case> cases;
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const int d : head_dims) {
      for (std::size_t r = 0; r < regimes.size(); ++r) {
        for (const std::int64_t piece : {144, 1, 23}) {
          if (piece == 1 && format.token_granularity > 1)
            continue;  // rounds up to the same case as 16
          const auto regime = static_cast<value_regime>(r);
          cases.push_back(
              {fmt::format("quantize/{}/d{}_{}_pieces{}", format.name, d, regimes[r], piece),
               format.id,
               [id = format.id, d, regime, piece](std::uint64_t seed) {
                 return build_quantize(id, d, regime, piece, seed);
               },
               ""});
        }
      }
      for (const int g : gqa_ratios) {
        decode_shape ragged{format.id, d, g, value_regime::normal, g != 2, g % 3 != 0, {}, {}};
        for (std::size_t i = 0; i < boundary_lengths.size(); ++i) {
          ragged.quantized.push_back(boundary_lengths[i]);
          ragged.recent.push_back(
              recent_lengths[(i + static_cast<std::size_t>(g)) % recent_lengths.size()]);
        }
        cases.push_back(
            decode_case(ragged, ragged.with_scores ? "boundaries" : "boundaries_noscores"));
      }
      for (std::size_t r = 1; r < regimes.size(); ++r) {
        const int g = d == 64 ? 3 : 4;
        const auto regime = static_cast<value_regime>(r);
        // Nothing is promised for recent tokens that are not finite.
        std::vector<std::int64_t> recent = {40, 0, 5};
        if (regime == value_regime::nonfinite) recent.assign(recent.size(), 0);
        cases.push_back(
            decode_case({format.id, d, g, regime, true, true, {200, 16, 77}, recent}, regimes[r]));
      }
      for (const split_lengths& s : split_cases) {
        const int g = d == 64 ? s.gqa_ratio_64 : s.gqa_ratio_128;
        cases.push_back(decode_case(
            {format.id, d, g, value_regime::normal, true, s.equal_lengths, s.quantized, s.recent},
            s.name));
      }
    }
  }
  return cases;
}

std::vector<test_case> tier_cases() {
  return {tier_boundaries(64, 3), tier_boundaries(64, 8), tier_boundaries(128, 4),
          tier_boundaries(128, 7)};
}

std::vector<test_case> more_tier_cases() {
  const std::span<const std::string_view> regimes = value_regime_names();
  std::vector<test_case> cases;
  for (const int d : head_dims) {
    for (const int g : gqa_ratios) {
      if (d == 64 ? g == 3 || g == 8 : g == 4 || g == 7) continue;  // in tier_cases()
      cases.push_back(tier_boundaries(d, g));
    }
    for (std::size_t r = 1; r < regimes.size(); ++r) {
      const auto regime = static_cast<value_regime>(r);
      // Nothing is promised for recent tokens that are not finite.
      std::vector<std::int64_t> recent = {40, 0, 5};
      if (regime == value_regime::nonfinite) recent.assign(recent.size(), 0);
      cases.push_back(decode_case({spec::format_id::k8v4,
                                   d,
                                   d == 64 ? 3 : 4,
                                   regime,
                                   true,
                                   true,
                                   {200, 16, 77},
                                   recent,
                                   {90, 150, 33}},
                                  regimes[r]));
    }
    for (std::size_t i = 0; i < split_cases.size(); ++i) {
      const split_lengths& s = split_cases[i];
      cases.push_back(decode_case(
          {spec::format_id::k8v4, d, d == 64 ? s.gqa_ratio_64 : s.gqa_ratio_128,
           value_regime::normal, true, s.equal_lengths, s.quantized, s.recent, split_low[i].low},
          s.name));
    }
  }
  return cases;
}

std::vector<test_case> stream_cases() {
  std::vector<test_case> cases;
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const int d : head_dims) {
      // MiniKV flushes 128 tokens at once, DiffKV quantizes each token; both also in tiles of 16.
      for (const int flush : {format.token_granularity == 1 ? 1 : 128, 16}) {
        const int steps = flush == 128 ? 260 : 84;
        const stream_shape shape{format.id, d, d == 64 ? 3 : 4, flush, steps};
        cases.push_back(
            {fmt::format("stream/{}/d{}_g{}_flush{}", format.name, d, shape.gqa_ratio, flush),
             format.id, [shape](std::uint64_t seed) { return build_stream(shape, seed); }, ""});
      }
    }
  }
  return cases;
}

std::vector<test_case> long_cases() {
  std::vector<test_case> cases;
  const auto add = [&](const decode_shape& shape, std::string_view suffix) {
    cases.push_back({fmt::format("long/{}/d{}_g{}{}", name_of_cache(shape), shape.head_dim,
                                 shape.gqa_ratio, suffix),
                     shape.format,
                     [shape](std::uint64_t seed) { return build_decode(shape, seed); }, "",
                     !shape.low.empty()});
  };
  // `low`, `deep_low`: of tiers, or empty.
  const auto add_all = [&](spec::format_id format, const std::vector<std::int64_t>& low,
                           const std::vector<std::int64_t>& deep_low) {
    for (const int d : head_dims) {
      for (const int g : {1, 4, 8}) {
        add({format,
             d,
             g,
             value_regime::normal,
             true,
             g == 4,
             {long_lengths.begin(), long_lengths.end()},
             {0, 127, 1, 64},
             low},
            "");
      }
    }
    // More splits than the fold takes at once.
    add({format,
         64,
         1,
         value_regime::normal,
         true,
         true,
         {splits34_tokens - (deep_low.empty() ? 0 : deep_low[0])},
         {splits34_recent},
         deep_low},
        "_splits34");
  };
  for (const spec::kv_format& format : spec::kv_formats) add_all(format.id, {}, {});
  add_all(spec::format_id::k8v4, {8193, 4096, 20000, 8192}, {16 * 2048});
  return cases;
}

}  // namespace kvproof::verify
