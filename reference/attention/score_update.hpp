// The running significance of cached tokens after a decode step: score_update.md in code.
#pragma once

#include <span>

namespace kvproof::reference {

// One (sequence, KV head). Adds to running[t] the largest probability that one of the gqa_ratio
// query heads gave token t. The number of tokens is running.size().
struct score_update_input {
  int gqa_ratio;                  // G
  std::span<const float> scores;  // [tokens][G], base-2 logits of decode_output
  std::span<const float> state;   // [G][2]: m, l of decode_output
};

// Throws contract_error on shapes that do not fit.
void update_scores(const score_update_input& input, std::span<float> running);

}  // namespace kvproof::reference
