// Decode attention of one (sequence, KV head): decode_attention.md in code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/architecture.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::reference {

// The cache is a quantized part, perhaps a second one (the low tier), and the recent part;
// positions count through them in this order. Any of them may be empty.
struct decode_input {
  spec::format_id format;
  int head_dim;
  int gqa_ratio;  // G
  float softmax_scale;
  std::span<const half_bits> q;  // [G][head_dim]
  std::int64_t num_quantized;    // of `format`; with two tiers those of the high one
  std::span<const std::span<const std::byte>> pages;  // in token order, each page_size_bytes
  std::int64_t num_recent;
  std::span<const half_bits> recent_k, recent_v;  // [num_recent][head_dim]
  // The low tier, k4v2, behind a high tier: only with format k8v4.
  std::int64_t num_low = 0;
  std::span<const std::span<const std::byte>> low_pages = {};
};

struct decode_output {
  std::vector<float> out;     // [G][head_dim]
  std::vector<float> state;   // [G][2]: m, l
  std::vector<float> scores;  // [num_quantized + num_low + num_recent][G]
};

// Throws contract_error on shapes that do not fit. `arch` chooses the tensor-core model; the
// contract is sm_90.
[[nodiscard]] decode_output decode_attention(const decode_input& input,
                                             architecture arch = architecture::sm_90);

// Many heads at once, in parallel over OpenMP threads; the result does not depend on their number.
[[nodiscard]] std::vector<decode_output> decode_attention(std::span<const decode_input> inputs,
                                                          architecture arch = architecture::sm_90);

}  // namespace kvproof::reference
