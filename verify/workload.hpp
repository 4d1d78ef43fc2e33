// What one case feeds to a cache and its attention: keys, values and queries in fp16, for a batch
// of sequences, and the events of its life: the prompt, then one event a decode step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/kv_format.hpp"
#include "traces/attention_trace.hpp"
#include "verify/variants.hpp"

namespace kvproof::verify {

using half_bits = std::uint16_t;

// Tokens of the k8v4 cache that are written to a k4v2 cache beside it, with tiers to the low tier.
struct demotion {
  std::vector<std::int32_t> tokens;      // [batch][kv_heads][list_capacity], -1 behind the end
  std::vector<std::int32_t> num_tokens;  // [batch][kv_heads]
  // [batch][kv_heads] first token of the k4v2 cache that is overwritten; empty: tokens are
  // appended.
  std::vector<std::int32_t> replace_from;
};

// One event of all (sequence, KV head) caches at once. In this order: tokens are appended to the
// recent part, tokens are quantized from the source rows or from the recent part, source rows are
// quantized to the low tier, quantized tokens are demoted, attention is computed.
struct event {
  std::string name;                    // "prompt", "step 12"
  std::vector<std::int32_t> append;    // [batch][kv_heads] rows that join the recent part
  std::vector<std::int32_t> quantize;  // [batch][kv_heads] tokens that become quantized
  // Quantize from the recent part instead of source rows: a head's whole recent part, or none of
  // it.
  bool from_recent = false;
  bool attend = false;
  std::vector<half_bits> q;  // [batch][q_heads][head_dim] if attend
  // Not empty: [batch][kv_heads][list_capacity] source rows to quantize, as many as `quantize`
  // says, -1 behind them. They may have been used before, and are not used up.
  std::vector<std::int32_t> gather = {};
  // With tiers, or empty: [batch][kv_heads] source rows that become tokens of the low tier, from
  // the same row low_first_row on in all heads. Later events take rows behind them.
  std::vector<std::int32_t> quantize_low = {};
  std::int64_t low_first_row = 0;
  demotion demote = {};
};

struct workload {
  spec::format_id format{};
  // Caches of two tiers: `format` is k8v4, and attention takes the k4v2 tokens too. Both tiers
  // share a pool and a page table, the low one from the end of a row.
  bool tiers = false;
  int head_dim = 0;
  int batch = 0;
  int kv_heads = 0;
  int gqa_ratio = 0;
  float softmax_scale = 0;
  bool with_scores = true;
  bool equal_lengths = true;       // what decode is told (a hint that moves work, not bits)
  std::int64_t source_tokens = 0;  // rows of k and v a sequence
  std::vector<half_bits> k, v;     // [batch][source_tokens][kv_heads][head_dim]
  int recent_capacity = 0;         // tokens, multiple of 8
  int list_capacity = 0;           // of a head's list of rows or tokens in an event
  std::vector<event> events;
  std::uint64_t seed = 0;  // order of the page ids

  [[nodiscard]] std::int64_t heads() const { return std::int64_t{batch} * kv_heads; }
};

// The life of one layer of a trace under a variant: the prompt, then `steps` decode steps.
[[nodiscard]] workload workload_of_trace(const variant& v, const traces::attention_trace& trace,
                                         std::size_t layer, std::int64_t steps, std::uint64_t seed);

}  // namespace kvproof::verify
