// Runs a workload on a device and, independently, through the reference, and compares the whole
// state as bits after every event: the pool of pages (every byte), page table, lengths, recent
// buffers, outputs, scores, workspace, canaries around whatever a kernel writes, and the inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/launch/launch.hpp"
#include "verify/compare.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

enum class verdict : std::uint8_t { passed, failed, skipped, vacuous, fault };
[[nodiscard]] std::string_view name_of(verdict v);

struct stage_result {
  std::string name;           // "prompt/quantize", "step 3/decode"
  std::int64_t compared = 0;  // elements: fp32 values, page bytes, table and length entries
  std::int64_t mismatches = 0;
};

struct case_result {
  std::string id;
  verdict result = verdict::passed;
  std::int64_t compared = 0;
  std::int64_t mismatches = 0;
  std::string detail;  // FAILED: stage, first difference, pattern; SKIPPED, FAULT: the reason
  std::vector<stage_result> stages;
  std::vector<std::string> entries;  // kernels that ran
};

// Called after each event's kernels and before the comparison, with the buffers by name ("out",
// "pages", ...): lets a test damage device state to prove that the comparison sees it.
struct device_state_view {
  gpu::device* device;
  gpu::device_ptr pages, page_table, num_quantized, num_recent, recent_k, recent_v, out, state,
      scores, q;
  std::int64_t pages_bytes, out_bytes, state_bytes, scores_bytes;
};
using fault_injection = std::function<void(const event&, const device_state_view&)>;

// A workload without a comparison is VACUOUS; a device_error is FAULT; the first FAILED stage ends
// the case.
[[nodiscard]] case_result run_case(const std::string& id, gpu::device& dev, const workload& w,
                                   const fault_injection& inject = {});

}  // namespace kvproof::verify
