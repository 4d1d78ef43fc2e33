// The CUDA device with the driver library as a parameter, so that tests can put another library in
// its place.
#pragma once

#include <memory>
#include <string>

#include "gpu/device/device.hpp"

namespace kvproof::gpu {

[[nodiscard]] std::unique_ptr<device> open_cuda_device(int ordinal, std::string* why_not,
                                                       const char* driver_library);
[[nodiscard]] int count_cuda_devices(std::string* why_not, const char* driver_library);

}  // namespace kvproof::gpu
