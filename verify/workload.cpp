// From a trace layer to the events of its cache, see workload.hpp.
#include "verify/workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.hpp"

namespace kvproof::verify {

workload workload_of_trace(const variant& v, const traces::attention_trace& trace,
                           std::size_t layer, std::int64_t steps, std::uint64_t seed) {
  const traces::layer_trace& data = trace.layers[layer];
  const traces::model_facts& model = trace.model;
  const spec::kv_format& format = spec::format_of(v.format);
  workload w;
  w.format = v.format;
  w.tiers = v.tiers;
  w.head_dim = model.head_dim;
  w.batch = 1;
  w.kv_heads = model.kv_heads;
  w.gqa_ratio = model.query_heads / model.kv_heads;
  w.softmax_scale = static_cast<float>(model.softmax_scale);
  w.source_tokens = trace.num_tokens;
  w.k = data.k;
  w.v = data.v;
  w.seed = seed;
  w.recent_capacity = v.policy.quantize_each_token ? 0 : std::max(v.policy.flush_length, 16);

  const auto all_heads = [&](std::int64_t n) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(w.heads()),
                                     static_cast<std::int32_t>(n));
  };
  std::int64_t recent = trace.prompt_length % format.token_granularity;
  event prompt;
  prompt.name = "prompt";
  const std::int64_t quantized = trace.prompt_length - recent,
                     high = v.tiers ? quantized / 4 : quantized;
  prompt.quantize = all_heads(high);
  if (v.tiers) {
    prompt.quantize_low = all_heads(quantized - high);
    prompt.low_first_row = high;
  }
  prompt.append = all_heads(recent);
  w.events.push_back(std::move(prompt));

  const std::int64_t row = std::int64_t{model.query_heads} * model.head_dim;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t token = trace.prompt_length + step;
    event e;
    e.name = fmt::format("step {}", step);
    e.append = all_heads(v.policy.quantize_each_token ? 0 : 1);
    recent += v.policy.quantize_each_token ? 0 : 1;
    const bool flush = !v.policy.quantize_each_token && recent >= v.policy.flush_length;
    e.quantize = all_heads(v.policy.quantize_each_token ? 1 : flush ? recent : 0);
    e.from_recent = flush;
    if (flush) recent = 0;
    e.attend = true;
    e.q.assign(data.q.begin() + token * row, data.q.begin() + (token + 1) * row);
    w.events.push_back(std::move(e));
  }
  return w;
}

}  // namespace kvproof::verify
