// See trace_cases.hpp.
#include "verify/trace_cases.hpp"

#include <fmt/format.h>

#include "reference/spec/error.hpp"
#include "verify/variants.hpp"

namespace kvproof::verify {

std::vector<test_case> trace_cases(std::shared_ptr<const traces::attention_trace> trace,
                                   std::string_view trace_name, std::int64_t steps,
                                   const std::string& rerun_options) {
  const traces::model_facts& model = trace->model;
  if (!spec::is_supported_head_dim(model.head_dim)) {
    throw spec::input_error(fmt::format("{}: head_dim {} has no kernel; kvproof covers 64 and 128",
                                        trace_name, model.head_dim));
  }
  if (model.query_heads / model.kv_heads > spec::max_gqa_ratio) {
    throw spec::input_error(
        fmt::format("{}: {} query heads on {} KV heads; ratios above {} have no kernel", trace_name,
                    model.query_heads, model.kv_heads, spec::max_gqa_ratio));
  }
  if (trace->prompt_length + steps > trace->num_tokens) {
    throw spec::input_error(fmt::format(
        "{}: holds {} generated tokens, {} decode steps asked; use --steps {} or --steps all",
        trace_name, trace->num_tokens - trace->prompt_length, steps,
        trace->num_tokens - trace->prompt_length));
  }
  std::vector<test_case> cases;
  for (const variant& v : variants()) {
    for (std::size_t layer = 0; layer < trace->layers.size(); ++layer) {
      cases.push_back(
          {fmt::format("{}/{}/layer{:02}", v.id, trace_name, trace->layers[layer].layer), v.format,
           [&v, trace, layer, steps](std::uint64_t seed) {
             return workload_of_trace(v, *trace, layer, steps, seed);
           },
           rerun_options});
    }
  }
  return cases;
}

}  // namespace kvproof::verify
