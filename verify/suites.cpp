// Lists of cases and the values they are made of, see suites.hpp.
#include "verify/suites.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr std::array<std::string_view, 8> regime_names = {
    "normal", "sharp", "drift", "tiny", "huge", "constant", "exact_halves", "zero_signs"};
constexpr std::array<int, 8> gqa_ratios = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr std::array<int, 2> head_dims = {64, 128};
// Around every boundary of groups, tiles, pages and splits.
constexpr std::array<std::int64_t, 10> boundary_lengths = {0,   1,   15,  16,   17,
                                                           127, 128, 129, 1000, 1025};
constexpr std::array<std::int64_t, 5> recent_lengths = {0, 1, 33, 127, 64};

double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// About N(0, 1): twelve uniform numbers less six, from one hash by re-mixing.
double normal(std::uint64_t bits) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    bits = mix_bits(bits + 0x9e3779b97f4a7c15ULL);
    sum += uniform(bits);
  }
  return sum;
}

enum class tensor { k, v, q };

// token, head and channel as far as a regime looks at them.
double value_of(value_regime regime, tensor t, std::uint64_t bits, std::int64_t token,
                std::int64_t channel) {
  const bool query = t == tensor::q;
  switch (regime) {
    case value_regime::normal:
      return normal(bits);
    case value_regime::sharp:
      return query ? 8 * normal(bits) : normal(bits);
    case value_regime::drift:
      return query ? 1 + 0.1 * normal(bits)
                   : (t == tensor::k ? 0.002 * static_cast<double>(token) : 0) + normal(bits);
    case value_regime::tiny:
      return query ? normal(bits) : std::ldexp(normal(bits), -20);
    case value_regime::huge:
      if (query) return 0.25 * normal(bits);
      return bits % 7 == 0 ? ((bits & 0x80) != 0 ? 65504.0 : -65504.0)
                           : 20000 * (uniform(bits) - 0.5);
    case value_regime::constant:
      // Constant over tokens of a tile (K groups), over channels of a token (per-token and V
      // groups).
      if (query) return normal(bits);
      if (t == tensor::k)
        return (channel % 5 == 0) ? -0.0 : 0.01 * static_cast<double>(token / 16 % 7) - 0.02;
      return token % 5 == 0 ? -0.0 : 0.37 * static_cast<double>(token % 11) - 2;
    case value_regime::exact_halves:
      // Range 15 in most groups: the step is 1 with 4 bits and 5 with 2 bits, half steps are
      // frequent.
      if (query) return normal(bits);
      return bits % 8 == 0 ? 0 : bits % 8 == 1 ? 15 : 0.5 * static_cast<double>(bits / 8 % 31);
    case value_regime::zero_signs:
      if (query) return bits % 3 == 0 ? -0.0 : normal(bits);
      return bits % 4 == 0 ? -0.0 : bits % 4 == 1 ? 0.0 : bits % 64 == 2 ? 0.001 : 0.0;
  }
  return 0;
}

std::vector<half_bits> draw(std::uint64_t seed, std::string_view name, tensor t,
                            value_regime regime, std::int64_t batch, std::int64_t tokens,
                            std::int64_t heads, std::int64_t head_dim) {
  std::vector<half_bits> x(static_cast<std::size_t>(batch * tokens * heads * head_dim));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t channel = index % head_dim, token = index / (head_dim * heads) % tokens;
    const double value = value_of(regime, t, hash_index(seed, name, i), token, channel);
    x[i] = reference::float_to_half(static_cast<float>(value));
  }
  return x;
}

struct decode_shape {
  spec::format_id format;
  int head_dim;
  int gqa_ratio;
  value_regime regime;
  bool with_scores;
  std::vector<std::int64_t> quantized,
      recent;  // [batch], the same for both KV heads but for a shift
};

constexpr int synthetic_kv_heads = 2;

workload build_decode(const decode_shape& s, std::uint64_t seed) {
  const spec::kv_format& format = spec::format_of(s.format);
  workload w;
  w.format = s.format;
  w.head_dim = s.head_dim;
  w.batch = static_cast<int>(s.quantized.size());
  w.kv_heads = synthetic_kv_heads;
  w.gqa_ratio = s.gqa_ratio;
  w.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
  w.with_scores = s.with_scores;
  w.recent_capacity = 128;
  w.seed = seed;
  event e;
  e.name = "decode";
  e.attend = true;
  for (std::size_t b = 0; b < s.quantized.size(); ++b) {
    for (int h = 0; h < synthetic_kv_heads; ++h) {
      // The second head of a sequence takes the lengths of the next sequence: lengths differ by
      // head, too.
      const std::size_t from = (b + static_cast<std::size_t>(h)) % s.quantized.size();
      const std::int64_t n =
          s.quantized[from] / format.token_granularity * format.token_granularity;
      e.quantize.push_back(static_cast<std::int32_t>(n));
      e.append.push_back(static_cast<std::int32_t>(s.recent[from]));
      w.source_tokens = std::max(w.source_tokens, n + s.recent[from]);
    }
  }
  w.source_tokens = std::max<std::int64_t>(w.source_tokens, 1);
  w.k = draw(seed, "k", tensor::k, s.regime, w.batch, w.source_tokens, w.kv_heads, w.head_dim);
  w.v = draw(seed, "v", tensor::v, s.regime, w.batch, w.source_tokens, w.kv_heads, w.head_dim);
  e.q = draw(seed, "q", tensor::q, s.regime, w.batch, 1, std::int64_t{w.kv_heads} * w.gqa_ratio,
             w.head_dim);
  w.events.push_back(std::move(e));
  return w;
}

// Appends in pieces: the bytes must not depend on how a cache was filled.
workload build_quantize(spec::format_id id, int head_dim, value_regime regime, std::int64_t piece,
                        std::uint64_t seed) {
  const spec::kv_format& format = spec::format_of(id);
  constexpr std::int64_t tokens = 144;
  workload w;
  w.format = id;
  w.head_dim = head_dim;
  w.batch = 2;
  w.kv_heads = synthetic_kv_heads;
  w.gqa_ratio = 1;
  w.softmax_scale = 1;
  w.source_tokens = tokens;
  w.seed = seed;
  w.k = draw(seed, "k", tensor::k, regime, w.batch, tokens, w.kv_heads, head_dim);
  w.v = draw(seed, "v", tensor::v, regime, w.batch, tokens, w.kv_heads, head_dim);
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

test_case decode_case(decode_shape shape, std::string_view suffix) {
  std::string id = fmt::format("decode/{}/d{}_g{}_{}", spec::format_of(shape.format).name,
                               shape.head_dim, shape.gqa_ratio, suffix);
  return {std::move(id),
          [shape = std::move(shape)](std::uint64_t seed) { return build_decode(shape, seed); }};
}

}  // namespace

std::span<const std::string_view> value_regime_names() { return regime_names; }

std::vector<test_case> smoke_suite() {
  std::vector<test_case> cases;
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const int d : head_dims) {
      for (std::size_t r = 0; r < regime_names.size(); ++r) {
        for (const std::int64_t piece : {144, 1, 23}) {
          if (piece == 1 && format.token_granularity > 1)
            continue;  // rounds up to the same case as 16
          const auto regime = static_cast<value_regime>(r);
          cases.push_back(
              {fmt::format("quantize/{}/d{}_{}_pieces{}", format.name, d, regime_names[r], piece),
               [id = format.id, d, regime, piece](std::uint64_t seed) {
                 return build_quantize(id, d, regime, piece, seed);
               }});
        }
      }
      for (const int g : gqa_ratios) {
        decode_shape ragged{format.id, d, g, value_regime::normal, g != 2, {}, {}};
        for (std::size_t i = 0; i < boundary_lengths.size(); ++i) {
          ragged.quantized.push_back(boundary_lengths[i]);
          ragged.recent.push_back(
              recent_lengths[(i + static_cast<std::size_t>(g)) % recent_lengths.size()]);
        }
        cases.push_back(
            decode_case(ragged, ragged.with_scores ? "boundaries" : "boundaries_noscores"));
      }
      for (std::size_t r = 1; r < regime_names.size(); ++r) {
        const int g = d == 64 ? 3 : 4;
        cases.push_back(decode_case(
            {format.id, d, g, static_cast<value_regime>(r), true, {200, 16, 77}, {40, 0, 5}},
            regime_names[r]));
      }
    }
  }
  return cases;
}

std::vector<test_case> trace_suite(std::shared_ptr<const traces::attention_trace> trace,
                                   std::string_view trace_name, std::string_view variant_id,
                                   std::int64_t steps) {
  const traces::model_facts& model = trace->model;
  if (!spec::is_supported_head_dim(model.head_dim)) {
    throw spec::input_error(fmt::format("{}: head_dim {} has no kernel; kvproof covers 64 and 128",
                                        trace_name, model.head_dim));
  }
  if (model.query_heads / model.kv_heads > spec::max_gqa_ratio) {
    throw spec::input_error(
        fmt::format("{}: {} query heads on {} KV heads; ratios above {} have no kernel", trace_name,
                    model.query_heads, model.kv_heads, spec::max_gqa_ratio));
  }
  if (trace->prompt_length + steps > trace->num_tokens) {
    throw spec::input_error(fmt::format(
        "{}: holds {} generated tokens, {} decode steps asked; use --steps {}", trace_name,
        trace->num_tokens - trace->prompt_length, steps, trace->num_tokens - trace->prompt_length));
  }
  std::vector<test_case> cases;
  for (const variant& v : variants()) {
    if (variant_id != "all" && variant_id != v.id) continue;
    for (std::size_t layer = 0; layer < trace->layers.size(); ++layer) {
      cases.push_back(
          {fmt::format("{}/{}/layer{:02}", v.id, trace_name, trace->layers[layer].layer),
           [&v, trace, layer, steps](std::uint64_t seed) {
             return workload_of_trace(v, *trace, layer, steps, seed);
           }});
    }
  }
  return cases;
}

bool matches_glob(std::string_view text, std::string_view glob) {
  std::size_t t = 0, g = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++t;
      ++g;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace kvproof::verify
