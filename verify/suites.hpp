// The cases that kvproof can run, by id. A suite is a list of cases; a case can build its workload
// again from its id and a seed alone (and, for trace cases, the trace), which is what `kvproof
// repro` does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/attention_trace.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

struct test_case {
  std::string id;  // "decode/k8v4/d64_g3_sharp", "minikv-2bit/smollm2-135m-instruct/layer09"
  std::function<workload(std::uint64_t seed)> build;
};

// Synthetic cases: every format, head_dim 64 and 128, GQA ratios 1 to 8, ragged batches
// of lengths around every boundary, and the value regimes below.
[[nodiscard]] std::vector<test_case> smoke_suite();

// Both schemes (or one variant) on every layer of a trace, `steps` decode steps each. Throws
// input_error when the trace has no prompt or fewer generated tokens than steps, or a shape that no
// kernel covers.
[[nodiscard]] std::vector<test_case> trace_suite(
    std::shared_ptr<const traces::attention_trace> trace, std::string_view trace_name,
    std::string_view variant_id, std::int64_t steps);

// How synthetic values are drawn.
enum class value_regime : std::uint8_t {
  normal,        // sums of uniforms, about N(0, 1)
  sharp,         // queries 8 times larger: few tokens take all the mass
  drift,         // keys grow along the sequence: the running maximum moves in every block
  tiny,          // around 2^-20: scales are fp16 subnormals or zero
  huge,          // keys and values up to +-65504, small queries
  constant,      // every quantization group is constant, some of them -0
  exact_halves,  // multiples of half a code step: every code is a tie
  zero_signs,    // only +0, -0 and a few small numbers
};
[[nodiscard]] std::span<const std::string_view> value_regime_names();

// '*' and '?' as in a shell; the whole text must match.
[[nodiscard]] bool matches_glob(std::string_view text, std::string_view glob);

}  // namespace kvproof::verify
