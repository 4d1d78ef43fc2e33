// A stand-in for libcuda.so.1 that notes what it is asked for. Device memory is host memory, a
// kernel does nothing. Test and library share one state, found as the symbol `fake_cuda_state`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvproof::tests {

struct fake_launch {
  std::string entry;
  std::array<unsigned, 3> grid{}, block{}, cluster{};  // cluster 0: no attribute
  bool overlaps_previous = false;
  unsigned shared_bytes = 0;
  const void* stream = nullptr;
  std::vector<std::byte> params;
};

struct fake_cuda {
  // Set by the test.
  int num_devices = 2;
  std::map<std::string, int> fail;  // entry point without suffix -> CUresult
  std::size_t param_bytes = 0;      // of the next kernels
  std::string jit_log;

  // Noted by the library.
  std::vector<std::string> calls;
  std::vector<std::string> modules;  // contents given to cuModuleLoadDataEx
  std::vector<fake_launch> launches;
  std::vector<std::pair<int, int>> function_attributes;  // set: attribute, value
  std::map<std::uint64_t, std::size_t> allocations;      // address -> bytes
  std::vector<unsigned> stream_flags;
  int context_depth = 0;          // pushes minus pops
  int calls_without_context = 0;  // of entry points that need one
  int retained = 0;               // primary contexts
  int live_modules = 0, live_streams = 0, live_events = 0;
};

}  // namespace kvproof::tests
