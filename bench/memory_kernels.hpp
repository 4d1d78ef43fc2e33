// The benchmarks' own module, embedded in the program (memory_kernels.cu).
#pragma once

#include "gpu/device/device.hpp"

namespace kvproof::bench {

// As the structs of memory_kernels.cu.
struct read_params {
  std::uint64_t data, sink;
  std::int64_t vectors;
};
struct repeat_params {
  std::uint64_t pattern, to;
  std::int64_t pattern_vectors, vectors;
};

[[nodiscard]] const gpu::kernel_module& memory_kernels();

// Launches read_kernel or repeat_kernel on a grid that fills the device.
void launch_read(gpu::device& dev, const read_params& params);
void launch_repeat(gpu::device& dev, const repeat_params& params);

}  // namespace kvproof::bench
