// What a trace holds, for people and programs: shapes, ranges, outlier channels of K, provenance.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "traces/attention_trace.hpp"

namespace kvproof::traces {

struct tensor_range {
  double min = 0, max = 0;  // 0 for a trace without tokens
};

// magnitude = largest |k| of a channel over all tokens; ratio = magnitude / median magnitude of the
// head's channels.
struct outlier_channel {
  int kv_head = 0, channel = 0;
  double magnitude = 0, ratio = 0;
};

struct layer_info {
  int layer = 0;
  tensor_range q, k, v;
  std::vector<outlier_channel> outliers;  // the five largest ratios, descending
};

struct trace_info {
  model_facts model;
  std::int64_t num_tokens = 0, prompt_length = 0;
  std::vector<layer_info> layers;
  std::string provenance, license;
  std::int64_t file_size_bytes = 0, raw_size_bytes = 0;  // raw: q, k, v and token ids
};

[[nodiscard]] trace_info compute_trace_info(const attention_trace& trace,
                                            std::int64_t file_size_bytes);
[[nodiscard]] std::string format_trace_info(const trace_info& info);
[[nodiscard]] nlohmann::json trace_info_json(const trace_info& info);

}  // namespace kvproof::traces
