// What one case feeds to the score update: logits and states as decode steps could have left them,
// and the running significance that they are added to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvproof::verify {

struct score_update_workload {
  struct step {
    std::string name;                      // "step 1"
    std::vector<std::int32_t> num_tokens;  // [batch][kv_heads]
    std::vector<float> scores;             // [batch][kv_heads][score_capacity][gqa_ratio]
    std::vector<float> state;              // [batch][q_heads][2]: m, l
  };

  int batch = 0;
  int kv_heads = 0;
  int gqa_ratio = 0;
  std::int64_t max_tokens = 0;                            // the upper bound that a launch is told
  std::int64_t score_capacity = 0, running_capacity = 0;  // tokens, multiples of 4
  std::vector<float> running;  // [batch][kv_heads][running_capacity], before the first step
  std::vector<step> steps;     // all on one `running`

  [[nodiscard]] std::size_t heads() const {
    return static_cast<std::size_t>(batch) * static_cast<std::size_t>(kv_heads);
  }
};

}  // namespace kvproof::verify
