// A decode step with exact significance: decode attention, then the score update, for slices of the
// batch that share one score buffer (spec/decode_attention.md, spec/score_update.md).
#pragma once

#include <cstdint>

#include "gpu/launch/launch.hpp"

namespace kvproof::gpu {

struct significance_args {
  // As for decode(), but scores is [slice][kv_heads][score_capacity][gqa_ratio], and the workspace
  // that of a batch of min(slice, batch) sequences is enough.
  decode_args decode;
  int slice;                      // sequences a launch, at least 1
  device_ptr num_tokens;          // int32 [batch][kv_heads]: num_quantized + num_recent
  std::int64_t max_tokens;        // upper bound of num_tokens
  device_ptr running;             // fp32 [batch][kv_heads][running_capacity], updated in place
  std::int64_t running_capacity;  // tokens, a multiple of 4, at least max_tokens
};

// decode() and score_update() for `slice` sequences at a time: 2 * ceil(batch / slice) launches.
// Bits do not depend on `slice`; a smaller one saves score memory and costs time (gpu/README.md).
// Throws spec::contract_error naming the bad field, before anything is launched. batch or kv_heads
// of 0: no launch.
void decode_with_significance(device& dev, const significance_args& args, stream* s = nullptr);

}  // namespace kvproof::gpu
