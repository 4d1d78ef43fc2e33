// Reconvergence points: the immediate post-dominator of every branch.
#pragma once

#include <vector>

#include "gpu/device/emulator/decode/program.hpp"

namespace kvproof::gpu::emulator {

// Sets `reconverge` of every branch; code.size() stands for the exit of the kernel.
void find_reconvergence(std::vector<instruction>& code);

}  // namespace kvproof::gpu::emulator
