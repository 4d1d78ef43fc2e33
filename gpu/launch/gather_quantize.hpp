// Quantizes selected rows only: gather, quantize and pack in one pass (spec/kv_formats.md section
// 6).
#pragma once

#include "gpu/launch/launch.hpp"

namespace kvproof::gpu {

// As quantize_args, but cache token first[b][h] + i comes from source row selected[b][h][i] of k
// and v instead of row i, for i < num_new[b][h]. Rows may repeat and stand in any order; each must
// be a row of k and v, which is not checked.
struct gather_quantize_args {
  quantize_args append;
  device_ptr selected;  // int32 [batch][kv_heads][max_selected]
  int max_selected;     // at least append.max_new_tokens
};

// Throws spec::contract_error naming the bad field. batch, kv_heads or max_new_tokens of 0: no
// launch.
void gather_quantize(device& dev, const gather_quantize_args& args, stream* s = nullptr);

}  // namespace kvproof::gpu
