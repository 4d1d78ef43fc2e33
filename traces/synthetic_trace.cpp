// Synthetic traces, see synthetic_trace.hpp. Every value is a pure function of (seed, layer,
// tensor, element index): a counter-based hash gives uniform bits, a sum of uniforms is
// near-normal, and 1 / (1 - 0.97 u) multiplies one value in a while by up to 33 (the heavy tail).
// Before RoPE:
//   k  = normal, plus a constant of 6 to 12 on a few slow-rotating channel pairs (outlier
//   channels), plus for
//        token 0 a vector along the mean query direction (attention sink)
//   q  = normal * 1.2 + mean query direction of its KV head;  v = normal with heavy tails
// RoPE rotates adjacent pairs (2i, 2i+1) by position * theta^(-2i/head_dim), in double, rounded to
// fp16 once. sin, cos and pow are the C library's: another libm could move the last bit of a value.
#include "traces/synthetic_trace.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "traces/half_value.hpp"

namespace kvproof::traces {
namespace {

constexpr double sink_strength = 3.0;      // of token 0's key along the mean query direction
constexpr int outlier_pairs = 3;           // slow channel pairs with a large constant in K
constexpr double tail_probability = 0.01;  // of a heavy-tailed element

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

// Random bits of element `index` of a named tensor.
class random_tensor {
 public:
  random_tensor(std::uint64_t seed, int layer, std::string_view name) {
    std::uint64_t h = seed;
    for (const char c : fmt::format("layer {} {}", layer, name))
      h = mix(h ^ static_cast<unsigned char>(c)) + 0x9e3779b97f4a7c15ULL;
    key_ = h;
  }
  [[nodiscard]] double uniform(std::int64_t index, int draw) const {
    const std::uint64_t counter =
        static_cast<std::uint64_t>(index) * 16 + static_cast<std::uint64_t>(draw);
    return static_cast<double>(mix(key_ + counter * 0x9e3779b97f4a7c15ULL) >> 11) * 0x1p-53;
  }
  [[nodiscard]] double normal(std::int64_t index) const {
    double sum = -6;
    for (int draw = 0; draw < 12; ++draw) sum += uniform(index, draw);
    return sum;
  }
  [[nodiscard]] double heavy(std::int64_t index) const {
    const double x = normal(index);
    return uniform(index, 12) < tail_probability ? x / (1 - 0.97 * uniform(index, 13)) : x;
  }

 private:
  std::uint64_t key_ = 0;
};

struct named_model {
  std::string_view name;
  int num_layers, query_heads, kv_heads, head_dim;
  double rope_theta;
};
constexpr std::array<named_model, 4> presets = {{{"llama2-7b", 32, 32, 32, 128, 1e4},
                                                 {"llama3-8b", 32, 32, 8, 128, 5e5},
                                                 {"qwen2.5-7b", 28, 28, 4, 128, 1e6},
                                                 {"smollm2-135m", 30, 9, 3, 64, 1e5}}};
constexpr std::array<std::string_view, presets.size()> preset_names = {
    presets[0].name, presets[1].name, presets[2].name, presets[3].name};

// Rotates the pairs of one head's vector for a position.
void apply_rope(std::vector<double>& x, std::int64_t position, double theta) {
  const auto d = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const double angle =
        static_cast<double>(position) * std::pow(theta, -static_cast<double>(i) / d);
    const double c = std::cos(angle), s = std::sin(angle), a = x[i], b = x[i + 1];
    x[i] = a * c - b * s;
    x[i + 1] = a * s + b * c;
  }
}

class layer_synthesizer {
 public:
  layer_synthesizer(const synthetic_options& o, int layer)
      : model_(o.model),
        tokens_(o.prompt_length + o.generated),
        q_(o.seed, layer, "q"),
        k_(o.seed, layer, "k"),
        v_(o.seed, layer, "v"),
        mean_(o.seed, layer, "mean query"),
        outlier_(o.seed, layer, "outlier") {}

  layer_trace make(int layer) const {
    layer_trace result;
    result.layer = layer;
    result.q = fill(
        model_.query_heads,
        [&](std::int64_t token, int head, std::int64_t index, int channel) {
          static_cast<void>(token);
          return 1.2 * q_.normal(index) +
                 mean_query(head / (model_.query_heads / model_.kv_heads), channel);
        },
        true);
    result.k = fill(
        model_.kv_heads,
        [&](std::int64_t token, int head, std::int64_t index, int channel) {
          const double sink = token == 0 ? sink_strength * mean_query(head, channel) : 0;
          return k_.normal(index) + constant_outlier(head, channel) + sink;
        },
        true);
    result.v = fill(
        model_.kv_heads,
        [&](std::int64_t, int, std::int64_t index, int) { return v_.heavy(index); }, false);
    return result;
  }

 private:
  [[nodiscard]] double mean_query(int kv_head, int channel) const {
    return mean_.normal(std::int64_t{kv_head} * model_.head_dim + channel);
  }
  // The last pairs rotate slowest: there a constant stays in its channel for thousands of tokens.
  [[nodiscard]] double constant_outlier(int kv_head, int channel) const {
    const int pair_from_end = (model_.head_dim - 1 - channel) / 2;
    if (pair_from_end >= outlier_pairs || channel % 2 != 0) return 0;
    const std::int64_t at = std::int64_t{kv_head} * outlier_pairs + pair_from_end;
    return (6 + 6 * outlier_.uniform(at, 0)) * (outlier_.uniform(at, 1) < 0.5 ? -1 : 1);
  }

  template <typename Value>
  std::vector<half_bits> fill(int heads, const Value& value, bool rope) const {
    std::vector<half_bits> x;
    x.reserve(static_cast<std::size_t>(tokens_ * heads * model_.head_dim));
    std::vector<double> row(static_cast<std::size_t>(model_.head_dim));
    for (std::int64_t token = 0; token < tokens_; ++token) {
      for (int head = 0; head < heads; ++head) {
        const std::int64_t first = (token * heads + head) * model_.head_dim;
        for (int c = 0; c < model_.head_dim; ++c)
          row[static_cast<std::size_t>(c)] = value(token, head, first + c, c);
        if (rope) apply_rope(row, token, model_.rope_theta);
        for (const double r : row) x.push_back(nearest_half(r));
      }
    }
    return x;
  }

  const model_facts& model_;
  std::int64_t tokens_;
  random_tensor q_, k_, v_, mean_, outlier_;
};

}  // namespace

std::span<const std::string_view> model_preset_names() { return preset_names; }

model_facts model_preset(std::string_view name) {
  for (const named_model& p : presets) {
    if (p.name != name) continue;
    return {std::string(p.name),
            p.num_layers,
            p.query_heads,
            p.kv_heads,
            p.head_dim,
            p.rope_theta,
            1 / std::sqrt(static_cast<double>(p.head_dim))};
  }
  throw spec::usage_error(
      fmt::format("unknown model '{}'; known: {}", name, fmt::join(preset_names, ", ")));
}

attention_trace synthesize_trace(const synthetic_options& o) {
  const model_facts& m = o.model;
  if (o.prompt_length < 0 || o.generated < 0 || m.head_dim < 2 || m.head_dim % 2 != 0 ||
      m.kv_heads < 1 || m.query_heads % m.kv_heads != 0) {
    throw spec::usage_error(
        "synthetic trace: lengths must not be negative, head_dim even, query_heads a multiple of "
        "kv_heads");
  }
  if (o.layers < 1 || o.layers > m.num_layers) {
    throw spec::usage_error(
        fmt::format("synthetic trace: {} layers asked of a model of {}", o.layers, m.num_layers));
  }
  attention_trace trace;
  trace.model = m;
  trace.num_tokens = o.prompt_length + o.generated;
  trace.prompt_length = o.prompt_length;
  trace.license = "Apache-2.0";
  trace.provenance =
      fmt::format("synthesized by kvproof, schema v1: model shape {}, seed {}", m.name, o.seed);
  for (std::int64_t t = 0; t < trace.num_tokens; ++t)
    trace.token_ids.push_back(static_cast<std::int32_t>(t));
  for (int i = 0; i < o.layers; ++i) {
    const int layer =
        o.layers == 1 ? 0 : static_cast<int>(std::int64_t{i} * (m.num_layers - 1) / (o.layers - 1));
    trace.layers.push_back(layer_synthesizer(o, layer).make(layer));
  }
  return trace;
}

}  // namespace kvproof::traces
