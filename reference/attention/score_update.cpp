#include "reference/attention/score_update.hpp"

#include <fmt/format.h>

#include <vector>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/spec/error.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::reference {

void update_scores(const score_update_input& input, std::span<float> running) {
  const int ratio = input.gqa_ratio;
  if (ratio < 1 || ratio > spec::max_gqa_ratio) {
    throw spec::contract_error(fmt::format("update_scores: {} query heads per KV head; use 1 .. {}",
                                           ratio, spec::max_gqa_ratio));
  }
  const auto heads = static_cast<std::size_t>(ratio);
  if (input.state.size() != 2 * heads || input.scores.size() != running.size() * heads) {
    throw spec::contract_error(fmt::format(
        "update_scores: state has {} and scores {} elements; expected {} and {} for {} tokens",
        input.state.size(), input.scores.size(), 2 * heads, running.size() * heads,
        running.size()));
  }

  std::vector<float> r(heads);
  for (std::size_t g = 0; g < heads; ++g) r[g] = div(1.0f, input.state[2 * g + 1]);
  for (std::size_t t = 0; t < running.size(); ++t) {
    const auto p = [&](std::size_t g) {
      return mul(ex2_approx(sub(input.scores[t * heads + g], input.state[2 * g])), r[g]);
    };
    float largest = p(0);
    for (std::size_t g = 1; g < heads; ++g) largest = max_ordered(largest, p(g));
    running[t] = add(running[t], largest);
  }
}

}  // namespace kvproof::reference
