// From the word on the command line to an open device, see device_choice.hpp.
#include "verify/device_choice.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace kvproof::verify {
namespace {

constexpr int needed_capability = 90;  // the cubins are sm_90a

}  // namespace

std::unique_ptr<gpu::device> choose_device(std::string_view choice) {
  if (choice == "emulator") return gpu::open_emulator();
  if (choice != "auto" && choice != "cuda") {
    throw spec::usage_error(fmt::format("unknown device '{}'; use auto, cuda or emulator", choice));
  }
  std::string why_not;
  const int count = gpu::count_cuda_devices(&why_not);
  for (int i = 0; i < count; ++i) {
    std::unique_ptr<gpu::device> device = gpu::open_cuda_device(i, &why_not);
    if (device == nullptr) continue;
    const gpu::device_info info = device->info();
    if (info.compute_capability == needed_capability) return device;
    why_not = fmt::format("{} has compute capability {}.{}, the kernels need 9.0", info.name,
                          info.compute_capability / 10, info.compute_capability % 10);
  }
  const char* required = std::getenv("KVPROOF_REQUIRE_GPU");
  if (required != nullptr && std::string_view(required) == "1") {
    throw spec::device_error(
        fmt::format("no usable GPU ({}), and KVPROOF_REQUIRE_GPU=1 demands one", why_not));
  }
  if (choice == "cuda") {
    throw nothing_to_run_error(fmt::format("no usable GPU: {}; use --device emulator", why_not));
  }
  return gpu::open_emulator();
}

}  // namespace kvproof::verify
