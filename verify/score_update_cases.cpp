// Lengths and logits as formulas, see score_update_cases.hpp.
#include "verify/score_update_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/spec/kv_format.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

constexpr int kv_heads = 2;
constexpr int steps = 2;
constexpr std::int64_t vector_tokens = 4;  // capacities are multiples of it

enum class logit_kind : std::uint8_t {
  ordinary,
  infinities,
  nans,
  nan_state,
  small_sums,
  large_sums,
  zero_signs
};
constexpr std::array<std::string_view, 7> kind_names = {
    "ordinary", "infinities", "nans", "nan_state", "small_sums", "large_sums", "zero_signs"};

struct update_shape {
  int gqa_ratio;
  std::vector<std::int32_t> num_tokens;  // [batch][kv_heads] at the first step
  std::vector<logit_kind> kinds;         // of heads, in turn
  std::int64_t slack;                    // tokens of a row behind the longest head
  bool exact_bound;                      // the launch is told the longest length, or the capacity
};

// One query head at one step: how its logits are drawn.
struct logit_source {
  logit_kind kind;
  std::string name;
  std::uint64_t seed;
  double centre, spread;

  [[nodiscard]] float operator()(std::int64_t token, std::uint64_t index) const {
    const std::uint64_t bits = hash_index(seed, name, index);
    const std::uint64_t choice = mix_bits(bits);
    const bool some = token > 0;  // token 0 stays finite: l > 0 and m is finite
    switch (kind) {
      case logit_kind::infinities:
        if (some && (choice % 4 == 0 || token % 5 == 2)) return -infinity;
        break;
      case logit_kind::nans:
      case logit_kind::nan_state:
        if (some && (choice % 4 == 0 || token % 7 == 3)) return nan;
        break;
      case logit_kind::zero_signs:
        if (token % 3 == 1) return -200;  // no query head gives it anything: p = +0
        return choice % 2 == 0 ? -0.0f : 0.0f;
      default:
        break;
    }
    return static_cast<float>(centre + spread * normal(bits));
  }
};

struct softmax_state {
  float m, l;
};

// m and l of one query head, `stride` apart: its logits without NaN, seen from m, which the kind
// moves away from their maximum.
softmax_state state_of(std::span<const float> logits, std::size_t stride, logit_kind kind) {
  float m = -infinity;
  for (std::size_t i = 0; i < logits.size(); i += stride) m = reference::max_ordered(m, logits[i]);
  const auto sum_from = [&](float base) {
    float l = 0;
    for (std::size_t i = 0; i < logits.size(); i += stride) {
      if (std::isnan(logits[i])) continue;
      l = reference::add(l, reference::ex2_approx(reference::sub(logits[i], base)));
    }
    return l;
  };
  if (kind == logit_kind::small_sums) m += 120;
  if (kind == logit_kind::large_sums) m -= static_cast<float>(126 - std::ilogb(sum_from(m)));
  return {m, sum_from(m)};
}

// Behind a head's end stand logits that an update would count, and significance that any update
// would change: -0 becomes +0 or more. Some of both are NaN, which must not spread.
float logit_behind(std::int64_t distance, double centre) {
  return distance % 4 == 3 ? nan : static_cast<float>(centre);
}
float significance_behind(std::int64_t distance, std::uint64_t bits) {
  return distance % 4 == 3   ? nan
         : distance % 4 == 0 ? -0.0f
                             : static_cast<float>(-1 - uniform(bits));
}

void draw_head(score_update_workload& w, score_update_workload::step& s, const update_shape& shape,
               std::size_t h, std::uint64_t seed) {
  const auto ratio = static_cast<std::size_t>(w.gqa_ratio);
  const logit_kind kind = shape.kinds[h % shape.kinds.size()];
  const std::int64_t n = s.num_tokens[h];
  const auto row = static_cast<std::size_t>(w.score_capacity) * ratio;
  const auto logits = std::span(s.scores).subspan(h * row, row);
  for (std::size_t g = 0; g < ratio; ++g) {
    const std::uint64_t bits = hash_index(seed, s.name + " head", h * ratio + g);
    const logit_source source{kind, s.name, seed, 6 * normal(bits), 0.5 + 4 * uniform(bits)};
    for (std::int64_t t = 0; t < w.score_capacity; ++t) {
      const std::size_t at = static_cast<std::size_t>(t) * ratio + g;
      logits[at] = t < n ? source(t, h * row + at) : logit_behind(t - n, source.centre);
    }
    softmax_state state{-infinity, 0};  // of a head without a token
    if (n > 0)
      state = state_of(logits.subspan(g, static_cast<std::size_t>(n - 1) * ratio + 1), ratio, kind);
    if (n > 0 && kind == logit_kind::nan_state && (h % 2 == 0 || g == h % ratio)) state.l = nan;
    if (n > 0 && kind == logit_kind::small_sums && (h + g) % 3 == 2) state.l = 0x1.8p-127f;
    if (kind == logit_kind::zero_signs && state.m == 0) state.m = bits % 2 == 0 ? -0.0f : 0.0f;
    s.state.push_back(state.m);
    s.state.push_back(state.l);
  }
}

score_update_workload build_update(const update_shape& shape, std::uint64_t seed) {
  const std::int64_t longest = std::ranges::max(shape.num_tokens) + steps - 1;
  const std::int64_t capacity = (longest + vector_tokens - 1) / vector_tokens * vector_tokens;
  score_update_workload w;
  w.kv_heads = kv_heads;
  w.batch = static_cast<int>(shape.num_tokens.size()) / kv_heads;
  w.gqa_ratio = shape.gqa_ratio;
  w.score_capacity = capacity + shape.slack;
  w.running_capacity = capacity + 2 * shape.slack;
  w.max_tokens = shape.exact_bound ? longest : w.score_capacity;
  for (std::size_t h = 0; h < w.heads(); ++h) {
    const bool signs = shape.kinds[h % shape.kinds.size()] == logit_kind::zero_signs;
    for (std::int64_t t = 0; t < w.running_capacity; ++t) {
      const std::uint64_t bits = hash_index(seed, "running", w.running.size());
      const std::int64_t behind = t - shape.num_tokens[h];
      w.running.push_back(behind >= 0     ? significance_behind(behind, bits)
                          : signs         ? (bits % 2 == 0 ? -0.0f : 0.0f)
                          : bits % 8 == 0 ? 0.0f
                                          : static_cast<float>(3 * uniform(bits)));
    }
  }
  for (int i = 0; i < steps; ++i) {
    score_update_workload::step s;
    s.name = fmt::format("step {}", i);
    for (const std::int32_t n : shape.num_tokens) s.num_tokens.push_back(n + i);
    s.scores.resize(w.heads() * static_cast<std::size_t>(w.score_capacity * w.gqa_ratio));
    for (std::size_t h = 0; h < w.heads(); ++h) draw_head(w, s, shape, h, seed);
    w.steps.push_back(std::move(s));
  }
  return w;
}

test_case update_case(const update_shape& shape, std::string_view name) {
  return {fmt::format("score_update/g{}_{}", shape.gqa_ratio, name),
          {},
          [shape](std::uint64_t seed) { return build_update(shape, seed); },
          ""};
}

}  // namespace

std::vector<test_case> score_update_cases() {
  using enum logit_kind;
  std::vector<test_case> cases;
  for (int g = 1; g <= spec::max_gqa_ratio; ++g) {
    cases.push_back(
        update_case({g,
                     {2563, 1, 3, 4, 5, 127, 128, 0, 511, 512, 513, 129, 1023, 640},
                     {ordinary, infinities, nans, nan_state, small_sums, large_sums, zero_signs},
                     vector_tokens,
                     g % 2 == 0},
                    "mixed"));
  }
  return cases;
}

std::vector<test_case> score_update_kind_cases() {
  const std::vector<std::int32_t> lengths = {6145, 0,   1,   2,   3,   4,   7,    8,    126,
                                             127,  128, 129, 511, 512, 513, 1024, 1536, 3001};
  std::vector<test_case> cases;
  for (int g = 1; g <= spec::max_gqa_ratio; ++g) {
    for (std::size_t kind = 0; kind < kind_names.size(); ++kind) {
      cases.push_back(
          update_case({g, lengths, {static_cast<logit_kind>(kind)}, vector_tokens, g % 2 == 1},
                      kind_names[kind]));
    }
    cases.push_back(
        update_case({g, {5, 1023, 4095, 4095}, {logit_kind::ordinary}, 0, true}, "full"));
  }
  return cases;
}

}  // namespace kvproof::verify
