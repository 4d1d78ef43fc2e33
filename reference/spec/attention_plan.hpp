// The order in which decode attention visits and merges tokens, as data. It is a pure function of
// the lengths of one (sequence, KV head), so that results do not depend on batch, grid or number of
// SMs. Prose: decode_attention.md section 3.
#pragma once

#include <cstdint>

#include "reference/spec/kv_format.hpp"

namespace kvproof::spec {

inline constexpr int strands_per_split = 4;  // independent online softmaxes, merged ascending
inline constexpr int tokens_per_block = 64;  // quantized part: one softmax update
inline constexpr int tokens_per_recent_block = 32;  // fp16 part: one softmax update

// How one quantized part of a cache is cut. The recent part is one more split.
struct split_plan {
  std::int64_t tokens_per_split;  // 1024 up to 8192 tokens, 2048 beyond
  std::int64_t num_splits;
};

[[nodiscard]] constexpr split_plan plan_splits(std::int64_t num_tokens) {
  const std::int64_t tokens_per_split = num_tokens <= 8192 ? 1024 : 2048;
  return {tokens_per_split, (num_tokens + tokens_per_split - 1) / tokens_per_split};
}

}  // namespace kvproof::spec
