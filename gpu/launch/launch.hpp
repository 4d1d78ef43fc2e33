// Launchers: from shapes and device pointers to one kernel launch. Stream last, no hidden
// allocation, no synchronisation, typed errors. Shapes are in elements, strides in elements,
// pointers in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/device/device.hpp"
#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

// Appends tokens to quantized caches (spec/kv_formats.md sections 2-4). Per (sequence b, KV head
// h): source rows [0, num_new[b][h]) of k and v become cache tokens first[b][h] .. first + num_new
// - 1.
struct quantize_args {
  spec::format_id format;
  int head_dim;
  int batch;
  int kv_heads;
  int max_new_tokens;  // upper bound of num_new, sizes the grid
  device_ptr k, v;     // fp16 [batch][token][kv_heads][head_dim], element strides below
  std::int64_t stride_batch, stride_token, stride_head;  // of k and v, multiples of 8 elements
  device_ptr first_token;  // int32 [batch][kv_heads], multiples of token_granularity
  device_ptr num_new;      // int32 [batch][kv_heads], multiples of token_granularity
  device_ptr page_table;   // int32 [batch][kv_heads][max_pages], page ids, any order
  int max_pages;
  device_ptr pages;  // pool: page id p at p * page_size_bytes, 128-byte aligned
};

// Decode attention (spec/decode_attention.md). One query token per sequence. With num_low, a cache
// of two tiers (DiffKV): format is k8v4 and describes the high tier; pages of the low tier, k4v2,
// stand in the same pool and at the end of the same row of the page table, backwards: page j is
// entry max_pages - 1 - j. The tiers of a head share its max_pages entries as they need.
struct decode_args {
  spec::format_id format;
  int head_dim;
  int batch;
  int kv_heads;
  int gqa_ratio;          // query heads per KV head, 1..8
  float softmax_scale;    // 1 / sqrt(head_dim) as a rule; c = scale * log2(e) is formed here
  int max_quantized;      // upper bound of num_quantized, sizes the grid
  int max_low;            // the same of num_low
  bool equal_lengths;     // a hint: no head is much shorter than others; bits do not depend on it
  device_ptr q;           // fp16 [batch][q_heads][head_dim]
  device_ptr page_table;  // int32 [batch][kv_heads][max_pages]
  int max_pages;
  device_ptr pages;
  device_ptr num_quantized;  // int32 [batch][kv_heads]
  device_ptr num_low;        // int32 [batch][kv_heads], or null: one part
  device_ptr num_recent;     // int32 [batch][kv_heads]
  device_ptr recent_k,
      recent_v;         // fp16 [batch][kv_heads][recent_capacity][head_dim]; null if capacity is 0
  int recent_capacity;  // tokens, a multiple of 8
  device_ptr out;       // fp32 [batch][q_heads][head_dim]
  device_ptr state;     // fp32 [batch][q_heads][2]: m, l
  device_ptr scores;    // fp32 [batch][kv_heads][score_capacity][gqa_ratio], or null: not written
  std::int64_t score_capacity;  // tokens; at least num_quantized + num_low + num_recent
  // decode_workspace_bytes(). Its first 4 * batch * kv_heads bytes (the tickets) must be zero
  // before the first launch and are zero after every launch; the rest may hold anything.
  device_ptr workspace;
};

// Bytes of scratch that a decode launch needs; a pure function of the shapes in `args` and of the
// device.
[[nodiscard]] std::int64_t decode_workspace_bytes(const decode_args& args);

// Bytes at the start of that scratch that hold tickets, padding included; a function of batch and
// kv_heads. Launches that differ in it do not share a workspace: partials of one lie on tickets of
// the other.
[[nodiscard]] std::int64_t decode_ticket_bytes(const decode_args& args);

// Both throw spec::contract_error naming the bad field. batch, kv_heads or max_new_tokens of 0: no
// launch.
void quantize(device& dev, const quantize_args& args, stream* s = nullptr);
void decode(device& dev, const decode_args& args, stream* s = nullptr);

}  // namespace kvproof::gpu
