// Runs one CTA to completion.
#pragma once

#include "gpu/device/emulator/emulator.hpp"
#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {

struct cta_counts {
  std::int64_t warp_instructions = 0;
  std::int64_t mmas = 0;
};

// Throws spec::device_error when the kernel faults.
cta_counts run_cta(const launch_context& launch, std::uint64_t linear, const options& o);

}  // namespace kvproof::gpu::emulator
