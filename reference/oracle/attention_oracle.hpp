// Decode attention in double precision, as a measure of error and never of bits: on the cache as it
// is stored (the error of an implementation) and on the original fp16 keys and values (the error of
// a quantization scheme). Logits are in base 2, as in decode_attention.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/decode_attention.hpp"

namespace kvproof::reference {

struct oracle_output {
  std::vector<double> out;          // [G][head_dim]; 0 for an empty cache
  std::vector<double> log_sum_exp;  // [G], base 2; -inf for an empty cache
  std::vector<double> scores;       // [tokens][G]
};

// On the decoded values code * scale + zero of the pages, those of the low tier behind, then
// the recent tokens.
[[nodiscard]] oracle_output attend_stored(const decode_input& input);

// The plain route on the same stored cache: K, V and P = 2^(s - max) are each rounded to fp16, all
// else is double. It stands for "dequantize to fp16, then attention with exact sums".
[[nodiscard]] oracle_output attend_plain_route(const decode_input& input);

// Attention over keys and values that were never quantized.
struct original_cache {
  int head_dim;
  int gqa_ratio;  // G
  float softmax_scale;
  std::span<const half_bits> q;     // [G][head_dim]
  std::span<const half_bits> k, v;  // [tokens][head_dim]
};
[[nodiscard]] oracle_output attend_original(const original_cache& cache);

// |value - oracle| / |oracle|, Euclidean norms; |value - oracle| itself where the oracle is zero.
// NaN stays NaN.
[[nodiscard]] double relative_error(std::span<const float> value, std::span<const double> oracle);
[[nodiscard]] double relative_error(std::span<const double> value, std::span<const double> oracle);

// The largest relative error of any query head; NaN if any is NaN. Both are [G][head_dim].
[[nodiscard]] double worst_head_error(std::span<const float> value, std::span<const double> oracle,
                                      int head_dim);
[[nodiscard]] double worst_head_error(std::span<const double> value, std::span<const double> oracle,
                                      int head_dim);

}  // namespace kvproof::reference
