// Adds a decode step's probabilities to the running significance of cached tokens
// (spec/score_update.md).
#pragma once

#include <cstdint>

#include "gpu/launch/launch.hpp"
#include "gpu/launch/launch_checks.hpp"

namespace kvproof::gpu {

// Per (sequence b, KV head h) and token t < num_tokens[b][h]: running[b][h][t] grows by the largest
// probability that a query head of the group gave the token. `scores` and `state` are what decode()
// wrote, with the same score_capacity; num_tokens is its num_quantized + num_recent. Tokens from
// num_tokens on are neither read nor written.
struct score_update_args {
  int batch;
  int kv_heads;
  int gqa_ratio;            // query heads per KV head, 1..8
  std::int64_t max_tokens;  // upper bound of num_tokens, sizes the grid
  device_ptr scores;        // fp32 [batch][kv_heads][score_capacity][gqa_ratio], 16-byte aligned
  std::int64_t score_capacity;  // tokens, a multiple of 4, at least max_tokens
  device_ptr state;             // fp32 [batch][q_heads][2]: m, l
  device_ptr num_tokens;        // int32 [batch][kv_heads]
  device_ptr running;  // fp32 [batch][kv_heads][running_capacity], 16-byte aligned, in place
  std::int64_t running_capacity;  // tokens, a multiple of 4, at least max_tokens
};

// Throws spec::contract_error naming the bad field. batch, kv_heads or max_tokens of 0: no launch.
void score_update(device& dev, const score_update_args& args, stream* s = nullptr);

// For launchers that contain it: throws as score_update() would, in the name of `check`. False if
// there is nothing to launch.
bool check_score_update(const launch_checks& check, const score_update_args& args);

}  // namespace kvproof::gpu
