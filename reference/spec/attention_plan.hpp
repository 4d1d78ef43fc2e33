// The order in which decode attention visits and merges tokens, as data. It is a pure function of
// the lengths of one (sequence, KV head), so that results do not depend on batch, grid or number of
// SMs. Prose: decode_attention.md section 3.
#pragma once

#include <cstdint>

#include "reference/spec/kv_format.hpp"

namespace kvproof::spec {

inline constexpr int strands_per_split = 4;  // independent online softmaxes, merged ascending
inline constexpr int tokens_per_block = 64;  // quantized part: one softmax update, one page
inline constexpr int tokens_per_recent_block = 32;  // fp16 part: one softmax update

struct attention_plan {
  std::int64_t num_quantized;  // tokens in pages, positions [0, num_quantized)
  std::int64_t num_recent;     // fp16 tokens, positions [num_quantized, num_quantized + num_recent)
  std::int64_t tokens_per_split;  // of the quantized part: 1024 up to 8192 tokens, 2048 beyond
  std::int64_t num_splits;        // of the quantized part; the recent part is one more, merged last
};

[[nodiscard]] constexpr attention_plan plan_attention(std::int64_t num_quantized,
                                                      std::int64_t num_recent) {
  const std::int64_t tokens_per_split = num_quantized <= 8192 ? 1024 : 2048;
  return {num_quantized, num_recent, tokens_per_split,
          (num_quantized + tokens_per_split - 1) / tokens_per_split};
}

}  // namespace kvproof::spec
