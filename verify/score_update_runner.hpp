// Runs a score update case on a device and, independently, through the reference, and compares
// after every step, as bits: the whole running significance, behind the heads' ends too, all that
// the kernel only reads, and the canaries.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "gpu/device/device.hpp"
#include "verify/fenced_buffer.hpp"
#include "verify/score_update_workload.hpp"
#include "verify/verdict.hpp"

namespace kvproof::verify {

struct score_update_buffers {
  // Allocates. Throws device_error.
  score_update_buffers(gpu::device& dev, const score_update_workload& w);

  [[nodiscard]] std::array<fenced_buffer*, 4> all() {
    return {&num_tokens, &scores, &state, &running};
  }

  fenced_buffer num_tokens, scores, state, running;
};

// As fault_injection of case_runner.hpp: called between the kernel of a stage ("step 1/
// score_update") and the comparison.
using score_update_injection = std::function<void(std::string_view stage, score_update_buffers&)>;

// Verdicts and errors are those of run_case() for a workload.
[[nodiscard]] case_result run_case(const std::string& id, gpu::device& dev,
                                   const score_update_workload& w,
                                   const score_update_injection& inject = {});

}  // namespace kvproof::verify
