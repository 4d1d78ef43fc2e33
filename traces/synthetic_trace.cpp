// Every draw is a hash of (seed, tensor name, element index): the same data for any thread count,
// order and platform, and a longer trace starts with the shorter one. Described in
// traces/README.md.
#include "traces/synthetic_trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "traces/half.hpp"
#include "traces/portable_math.hpp"
#include "traces/trace_rules.hpp"

namespace kvproof::traces {

namespace {

constexpr std::int32_t vocabulary = 32000;
constexpr double outlier_offset = 16.0;  // standard deviations of k
constexpr double sink_advantage = 8.0;   // mean logit of the sink above that of other tokens
constexpr double query_mean = 2.0;       // in a sink pair, before the head's own strength
constexpr double max_sink_key = 24.0;    // keeps odd softmax scales in the range of fp16
constexpr std::int64_t tokens_worth_threads = 64;  // below, starting them costs more
constexpr double max_tail = 16.0;
constexpr std::array<double, 4> sink_strength = {1.0, 0.5, 0.4, 0.3};  // of tokens 0, 1, 2, 3
constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64, a bijection.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 64 hashed bits for each element of a named tensor: two SplitMix64 steps from a key.
class element_hash {
 public:
  element_hash(std::uint64_t seed, std::string_view tensor) {
    std::uint64_t name = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : tensor) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    key_ = mix(mix(seed + golden_gamma) ^ name);
  }
  [[nodiscard]] std::uint64_t operator()(std::int64_t element) const {
    return mix(key_ ^ mix(static_cast<std::uint64_t>(element) * golden_gamma + golden_gamma));
  }

 private:
  std::uint64_t key_;
};

// Unit variance, |x| <= 2 sqrt(3): the sum of four uniforms of 16 bits.
double bell(std::uint64_t bits) {
  const auto sum = static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                       (bits >> 32 & 0xffff) + (bits >> 48));
  return (sum - 2.0 * 0xffff) * (std::numbers::sqrt3 / 0x10000);
}

// Student's t with two degrees of freedom by its inverse, limited to max_tail.
double student(std::uint64_t bits) {
  const double u = (static_cast<double>(bits >> 40) + 0.5) * 0x1p-24;
  return std::clamp((2.0 * u - 1.0) / std::sqrt(2.0 * u * (1.0 - u)), -max_tail, max_tail);
}

// One element in 2^rarity has a heavy tail.
double noise(const element_hash& hash, std::int64_t element, int rarity) {
  const std::uint64_t bits = hash(element);
  const std::uint64_t more = mix(bits + golden_gamma);
  const bool tail = (more & ((std::uint64_t{1} << rarity) - 1)) == 0;
  return tail ? student(mix(more + golden_gamma)) : bell(bits);
}

// Uniform in [0, 1).
double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Which pairs of channels carry structure: pair i turns theta^(-2i/head_dim) a token, so the last
// pairs are slow. An eighth of them is for sinks, the eighth before for outliers.
struct pair_roles {
  int num_pairs;
  int first_sink;
  int first_outlier;
  explicit pair_roles(int head_dim)
      : num_pairs(head_dim / 2),
        first_sink(num_pairs - std::max(1, num_pairs / 8)),
        first_outlier(std::max(0, first_sink - std::max(1, num_pairs / 8))) {}
  [[nodiscard]] bool is_sink(int pair) const { return pair >= first_sink; }
};

class synthesizer {
 public:
  explicit synthesizer(const synthetic_options& options)
      : options_(options),
        model_(options.model),
        roles_(options.model.head_dim),
        num_tokens_(options.prompt_length + options.generated) {
    const double log2_theta = portable_log2(model_.rope_theta);
    for (int i = 0; i < roles_.num_pairs; ++i) {
      turns_per_token_.push_back(portable_exp2(-2.0 * i / model_.head_dim * log2_theta) /
                                 (2.0 * std::numbers::pi));
    }
    const int sink_pairs = roles_.num_pairs - roles_.first_sink;
    sink_key_ =
        std::min(sink_advantage / (query_mean * sink_pairs * model_.softmax_scale), max_sink_key);
  }

  [[nodiscard]] layer_trace layer(int index) const {
    const std::string name = fmt::format("layers/{}/", index);
    layer_trace out = {.layer = index, .q = {}, .k = {}, .v = {}};
    out.q = rotated(model_.query_heads, [this, hash = element_hash(options_.seed, name + "q"),
                                         strength = element_hash(options_.seed, name + "q/sink")](
                                            std::int64_t row, int head, std::int64_t, int pair) {
      channel_pair x = noise_pair(hash, row, pair, 8);
      if (roles_.is_sink(pair)) x.even += query_mean * (0.5 + unit(strength(head)));
      return x;
    });
    out.k = rotated(model_.kv_heads, [this, hash = element_hash(options_.seed, name + "k"),
                                      outlier = element_hash(options_.seed, name + "k/outlier")](
                                         std::int64_t row, int head, std::int64_t token, int pair) {
      channel_pair x = noise_pair(hash, row, pair, 9);
      if (roles_.is_sink(pair)) x.even += sink_offset(token);
      x.even += outlier_offset_of(outlier, head, pair);
      return x;
    });
    out.v = values(element_hash(options_.seed, name + "v"));
    return out;
  }

  [[nodiscard]] std::vector<std::int32_t> token_ids() const {
    const element_hash hash(options_.seed, "token_ids");
    std::vector<std::int32_t> ids(static_cast<std::size_t>(num_tokens_));
    for (std::size_t t = 0; t < ids.size(); ++t) {
      ids[t] = static_cast<std::int32_t>(hash(static_cast<std::int64_t>(t)) % vocabulary);
    }
    return ids;
  }

 private:
  struct channel_pair {
    double even;
    double odd;
  };

  // `row` counts (token, head).
  [[nodiscard]] channel_pair noise_pair(const element_hash& hash, std::int64_t row, int pair,
                                        int rarity) const {
    const std::int64_t element = row * model_.head_dim + 2 * pair;
    return {noise(hash, element, rarity), noise(hash, element + 1, rarity)};
  }

  [[nodiscard]] double sink_offset(std::int64_t token) const {
    const double others = -0.25 * sink_key_;
    if (token >= static_cast<std::int64_t>(sink_strength.size())) return others;
    return others + sink_strength[static_cast<std::size_t>(token)] * sink_key_;
  }

  // Two of the outlier pairs of a head, or one if they coincide, with a sign each.
  [[nodiscard]] double outlier_offset_of(const element_hash& hash, int head, int pair) const {
    const int candidates = roles_.first_sink - roles_.first_outlier;
    for (int which = 0; which < 2 && candidates > 0; ++which) {
      const std::uint64_t bits = hash(2 * std::int64_t{head} + which);
      const auto chosen = static_cast<int>((bits >> 1) % static_cast<std::uint64_t>(candidates));
      if (pair == roles_.first_outlier + chosen) {
        return (bits & 1) != 0 ? outlier_offset : -outlier_offset;
      }
    }
    return 0.0;
  }

  [[nodiscard]] std::vector<sine_cosine> angles(std::int64_t token) const {
    std::vector<sine_cosine> out;
    for (const double turns : turns_per_token_) {
      out.push_back(portable_turn(static_cast<double>(token) * turns));
    }
    return out;
  }

  // RoPE on adjacent channels of what `element(row, head, token, pair)` gives, rounded once.
  template <class Element>
  [[nodiscard]] std::vector<half_bits> rotated(int heads, const Element& element) const {
    std::vector<half_bits> out(
        static_cast<std::size_t>(num_elements(num_tokens_, heads, model_.head_dim)));
#pragma omp parallel for schedule(static) if (num_tokens_ >= tokens_worth_threads)
    for (std::int64_t token = 0; token < num_tokens_; ++token) {
      const std::vector<sine_cosine> turn = angles(token);
      for (int head = 0; head < heads; ++head) {
        const std::int64_t row = token * heads + head;
        half_bits* to = out.data() + row * model_.head_dim;
        for (int pair = 0; pair < roles_.num_pairs; ++pair) {
          const channel_pair x = element(row, head, token, pair);
          const auto [sine, cosine] = turn[static_cast<std::size_t>(pair)];
          to[2 * pair] = finite_half(x.even * cosine - x.odd * sine);
          to[2 * pair + 1] = finite_half(x.even * sine + x.odd * cosine);
        }
      }
    }
    return out;
  }

  [[nodiscard]] std::vector<half_bits> values(const element_hash& hash) const {
    const std::int64_t count = num_elements(num_tokens_, model_.kv_heads, model_.head_dim);
    std::vector<half_bits> out(static_cast<std::size_t>(count));
#pragma omp parallel for schedule(static) if (num_tokens_ >= tokens_worth_threads)
    for (std::int64_t i = 0; i < count; ++i) {
      out[static_cast<std::size_t>(i)] = finite_half(noise(hash, i, 6));
    }
    return out;
  }

  const synthetic_options& options_;
  const model_facts& model_;
  pair_roles roles_;
  std::int64_t num_tokens_;
  std::vector<double> turns_per_token_;
  double sink_key_ = 0;  // what token 0 has more than others in each sink pair
};

constexpr std::array<std::string_view, 4> preset_names = {"llama2-7b", "llama3-8b", "qwen2.5-7b",
                                                          "smollm2-135m"};

model_facts facts(std::string_view name, int num_layers, int query_heads, int kv_heads,
                  int head_dim, double rope_theta) {
  return {.name = std::string(name),
          .num_layers = num_layers,
          .query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .rope_theta = rope_theta,
          .softmax_scale = 1.0 / std::sqrt(static_cast<double>(head_dim))};
}

void check_options(const synthetic_options& o) {
  const auto refuse = [](const std::string& what) {
    throw spec::usage_error("synthetic trace: " + what + "; choose another shape");
  };
  if (o.prompt_length < 0 || o.generated < 0 || o.prompt_length > max_tokens ||
      o.generated > max_tokens - o.prompt_length) {
    refuse(fmt::format("{} prompt and {} generated tokens are not in 0 to {}", o.prompt_length,
                       o.generated, max_tokens));
  }
  if (const auto rule = broken_rule(o.model, o.prompt_length + o.generated, o.prompt_length)) {
    refuse(*rule);
  }
  if (o.model.head_dim % 2 != 0) {
    refuse(fmt::format("head_dim = {} is odd, RoPE turns pairs of channels", o.model.head_dim));
  }
  if (o.model.rope_theta < 1 || o.model.rope_theta > 1e30) {
    refuse(fmt::format("rope_theta = {} is not in 1 to 1e30", o.model.rope_theta));
  }
  if (o.layers < 1 || o.layers > o.model.num_layers) {
    refuse(fmt::format("{} recorded layers of {}", o.layers, o.model.num_layers));
  }
}

}  // namespace

std::span<const std::string_view> model_preset_names() { return preset_names; }

model_facts model_preset(std::string_view name) {
  const std::array<model_facts, preset_names.size()> presets = {
      facts(preset_names[0], 32, 32, 32, 128, 1e4), facts(preset_names[1], 32, 32, 8, 128, 5e5),
      facts(preset_names[2], 28, 28, 4, 128, 1e6), facts(preset_names[3], 30, 9, 3, 64, 1e5)};
  const auto found = std::ranges::find(presets, name, &model_facts::name);
  if (found == presets.end()) {
    throw spec::usage_error(
        fmt::format("unknown model \"{}\"; choose one of {}", name, fmt::join(preset_names, ", ")));
  }
  return *found;
}

attention_trace synthesize_trace(const synthetic_options& options) {
  check_options(options);
  const synthesizer make(options);
  attention_trace trace;
  trace.model = options.model;
  trace.num_tokens = options.prompt_length + options.generated;
  trace.prompt_length = options.prompt_length;
  trace.token_ids = make.token_ids();
  for (int i = 0; i < options.layers; ++i) {
    const int last = options.model.num_layers - 1;
    trace.layers.push_back(make.layer(options.layers == 1 ? 0 : i * last / (options.layers - 1)));
  }
  trace.provenance = fmt::format(
      "synthetic, generator 1, seed {}: noise with heavy tails, sinks at tokens 0 to 3, outlier "
      "channels in slow pairs of k, RoPE on adjacent channel pairs",
      options.seed);
  trace.license = "Apache-2.0";
  return trace;
}

}  // namespace kvproof::traces
