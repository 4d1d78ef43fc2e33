// Synthetic attention traces: any shape from a seed, with the features that break quantizers:
// attention sinks, outlier channels in slow RoPE dimensions of K, heavy tails. A pure function of
// its arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "traces/attention_trace.hpp"

namespace kvproof::traces {

struct synthetic_options {
  model_facts model;
  std::int64_t prompt_length = 512;
  std::int64_t generated = 128;
  int layers = 2;  // recorded layers, spread over depth
  std::uint64_t seed = 1;
};

// Shapes of known models: llama2-7b, llama3-8b, qwen2.5-7b, smollm2-135m. Throws usage_error.
[[nodiscard]] model_facts model_preset(std::string_view name);
[[nodiscard]] std::span<const std::string_view> model_preset_names();

[[nodiscard]] attention_trace synthesize_trace(const synthetic_options& options);

}  // namespace kvproof::traces
