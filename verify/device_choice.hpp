// Which device a run uses: --device auto, cuda or emulator.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gpu/device/device.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::verify {

// Nothing could run: no GPU under --device cuda, or a build without kernels. Exit code 77.
class nothing_to_run_error : public spec::error {
  using spec::error::error;
};

// auto: the first CUDA device of compute capability 9.0, else the emulator. With
// KVPROOF_REQUIRE_GPU=1 in the environment (CI of a GPU machine) a missing GPU is a device_error.
[[nodiscard]] std::unique_ptr<gpu::device> choose_device(std::string_view choice);

}  // namespace kvproof::verify
