// Runs a workload on a device and, independently, through the reference, and compares the whole
// state as bits after every stage: the pool of pages (every byte), outputs and scores, and all that
// a kernel only reads or must leave as it was: tables, lengths, recent part, inputs, tickets, and
// the canaries around every buffer.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "gpu/device/device.hpp"
#include "verify/device_state.hpp"
#include "verify/test_case.hpp"
#include "verify/verdict.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

// Called after the kernels of each stage ("prompt/quantize", "step 3/decode") and before the
// comparison: lets a test damage the device's state to prove that the comparison sees it.
using fault_injection = std::function<void(std::string_view stage, device_state&)>;

// A workload whose kernels have nothing to write is VACUOUS, however much untouched state was
// compared; a device_error is FAULT; the first FAILED stage ends the case. Throws contract_error
// (a bug of kvproof) with the case's id.
[[nodiscard]] case_result run_case(const std::string& id, gpu::device& dev, const workload& w,
                                   const fault_injection& inject = {});

// The same for a case of any kind.
[[nodiscard]] case_result run_case(const std::string& id, gpu::device& dev, const case_data& data);

}  // namespace kvproof::verify
