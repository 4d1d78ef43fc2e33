// Moves tokens from a K8V4 cache to a K4V2 cache (spec/kv_formats.md section 7).
#pragma once

#include "gpu/launch/launch.hpp"

namespace kvproof::gpu {

enum class demote_mode : std::uint8_t {
  append,   // a page whose slot 0 is written is new: written in full, zeros behind the end
  replace,  // only the written tokens change, whatever the slot
};

// Per (sequence b, KV head h): tokens tokens[b][h][i] of the K8V4 cache, i < num_tokens[b][h],
// become tokens first_token[b][h] + i of the K4V2 cache. Tokens may repeat and stand in any order;
// each must be in the K8V4 cache, which is not checked. The two caches share no page.
struct demote_args {
  int head_dim;
  int batch;
  int kv_heads;
  int max_tokens;         // of `tokens`; upper bound of num_tokens, sizes the grid
  device_ptr tokens;      // int32 [batch][kv_heads][max_tokens]
  device_ptr num_tokens;  // int32 [batch][kv_heads]
  device_ptr from_table;  // int32 [batch][kv_heads][max_from_pages]
  int max_from_pages;
  device_ptr from_pages;   // K8V4 pool
  device_ptr first_token;  // int32 [batch][kv_heads]
  device_ptr to_table;     // int32 [batch][kv_heads][max_to_pages]
  int max_to_pages;
  device_ptr to_pages;  // K4V2 pool
  demote_mode mode;
};

// Throws spec::contract_error naming the bad field. batch, kv_heads or max_tokens of 0: no launch.
void demote(device& dev, const demote_args& args, stream* s = nullptr);

}  // namespace kvproof::gpu
