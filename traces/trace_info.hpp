// What is in an attention trace: shapes, ranges, outlier channels of K, origin, size. The numbers
// are exact functions of the stored halves.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "traces/attention_trace.hpp"

namespace kvproof::traces {

struct tensor_range {
  double min = 0;  // all 0 if there are no tokens
  double max = 0;
  double absmax = 0;
};

// A channel's peak is its maximum over tokens of |k|; its ratio is the peak divided by the median
// of the peaks of all channels of its KV head (mean of the middle two). Ratio 0 if the peak is 0,
// infinite if only the median is.
struct outlier_channel {
  int kv_head = 0;
  int channel = 0;
  double peak = 0;
  double ratio = 0;
};

inline constexpr std::size_t max_outliers = 5;

struct layer_info {
  int layer = 0;
  tensor_range q;
  tensor_range k;
  tensor_range v;
  std::vector<outlier_channel> head_outliers;  // [kv_heads]: the largest ratio of each KV head
  std::vector<outlier_channel> top_outliers;   // largest ratios of the layer, max_outliers at most;
                                               // of equal ones, lower head and channel first
};

struct trace_info {
  model_facts model;
  std::int64_t num_tokens = 0;
  std::int64_t prompt_length = 0;
  std::vector<layer_info> layers;
  std::string provenance;
  std::string license;
  std::int64_t data_bytes = 0;  // of token ids, q, k and v
  std::int64_t file_bytes = 0;
};

[[nodiscard]] trace_info compute_trace_info(const attention_trace& trace,
                                            std::int64_t file_size_bytes);

// Aligned text for a terminal, without a newline at the end.
[[nodiscard]] std::string format_trace_info(const trace_info& info);

// An infinite ratio is null.
[[nodiscard]] nlohmann::json trace_info_json(const trace_info& info);

}  // namespace kvproof::traces
