// The device that kernel tests run on: the emulator, or the first GPU if the environment says
// KVPROOF_TEST_DEVICE=cuda.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "gpu/device/device.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::tests {

inline std::unique_ptr<gpu::device> open_test_device() {
  const char* const wanted = std::getenv("KVPROOF_TEST_DEVICE");
  if (wanted == nullptr || std::string_view(wanted) == "emulator") return gpu::open_emulator();
  std::string why_not = "KVPROOF_TEST_DEVICE is neither emulator nor cuda";
  std::unique_ptr<gpu::device> dev;
  if (std::string_view(wanted) == "cuda") dev = gpu::open_cuda_device(0, &why_not);
  if (dev == nullptr) throw spec::device_error("no test device: " + why_not);
  return dev;
}

}  // namespace kvproof::tests
