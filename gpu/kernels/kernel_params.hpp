// Parameter structs of the kernels, passed by value. Pointers are device memory; shapes in
// comments.
#pragma once

#include <cstdint>

namespace kvproof::gpu {

struct quantize_params {
  const std::uint16_t* k;  // fp16 [batch][token][kv_heads][head_dim], strides below
  const std::uint16_t* v;
  std::int64_t stride_batch, stride_token, stride_head;  // elements
  const std::int32_t* first_token;                       // [batch][kv_heads]
  const std::int32_t* num_new;                           // [batch][kv_heads]
  const std::int32_t* page_table;                        // [batch][kv_heads][max_pages]
  unsigned char* pages;                                  // [page id][page bytes]
  std::int32_t max_pages;
  std::int32_t max_selected;
  const std::int32_t* selected;  // gather: source rows [batch][kv_heads][max_selected]
};

struct demote_params {             // K8V4 ("from") to K4V2 ("to")
  const std::int32_t* from_table;  // [batch][kv_heads][max_from_pages]
  const unsigned char* from_pages;
  const std::int32_t* tokens;       // [batch][kv_heads][max_tokens], tokens of the K8V4 cache
  const std::int32_t* first_token;  // [batch][kv_heads], of the K4V2 cache
  const std::int32_t* num_tokens;   // [batch][kv_heads]
  const std::int32_t* to_table;     // [batch][kv_heads][max_to_pages]
  unsigned char* to_pages;
  std::int64_t max_tokens;
  std::int32_t max_from_pages;
  std::int32_t max_to_pages;
  std::int32_t replace;  // 1: no page is cleared
};

struct decode_params {
  const std::uint16_t* q;          // fp16 [batch][kv_heads][G][head_dim]
  const std::int32_t* page_table;  // [batch][kv_heads][max_pages]; low tier: from a row's end
  const unsigned char* pages;
  const std::int32_t* num_quantized;  // [batch][kv_heads]; two tiers: of the high one
  const std::int32_t* num_low;        // [batch][kv_heads], two tiers only
  const std::int32_t* num_recent;     // [batch][kv_heads]
  const std::uint16_t* recent_k;      // fp16 [batch][kv_heads][recent_capacity][head_dim]
  const std::uint16_t* recent_v;
  float* out;         // [batch][kv_heads][G][head_dim]
  float* state;       // [batch][kv_heads][G][2]: m, l
  float* scores;      // [batch][kv_heads][score_capacity][G] or null
  unsigned* tickets;  // [batch][kv_heads]: splits that have arrived; 0 before and after a launch
  float* partials;    // [batch][kv_heads][max_splits][decode_partial_floats()]: o, m, l of a split
  std::int64_t score_capacity;  // tokens
  std::int32_t work_items;      // batch * kv_heads * max_splits
  float c;                      // softmax_scale * log2(e), rounded once
  std::int32_t max_quantized;   // upper bound of num_quantized
  std::int32_t max_pages;
  std::int32_t max_splits;       // upper bound of the splits of one head, the recent part included
  std::int32_t recent_capacity;  // tokens
  std::int32_t balance;          // 1: CTAs share the pages evenly; 0: (head, split) pairs
};

struct score_update_params {
  const float* scores;             // [batch][kv_heads][score_capacity][G]
  const float* state;              // [batch][kv_heads][G][2]: m, l
  const std::int32_t* num_tokens;  // [batch][kv_heads]
  float* running;                  // [batch][kv_heads][running_capacity]
  std::int64_t score_capacity;     // tokens
  std::int64_t running_capacity;
};

}  // namespace kvproof::gpu
