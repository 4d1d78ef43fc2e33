// Cases of an attention trace: VARIANT/TRACE/layerNN.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/attention_trace.hpp"
#include "verify/test_case.hpp"

namespace kvproof::verify {

// Every variant on every layer of the trace: the prompt, then `steps` decode steps. Throws
// input_error when the trace has fewer generated tokens than steps, or a shape that no kernel
// covers.
[[nodiscard]] std::vector<test_case> trace_cases(
    std::shared_ptr<const traces::attention_trace> trace, std::string_view trace_name,
    std::int64_t steps, const std::string& rerun_options);

}  // namespace kvproof::verify
