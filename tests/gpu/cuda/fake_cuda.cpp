// Entry points of the stand-in driver, see fake_cuda.hpp. Signatures are those of cuda.h.
#include "tests/gpu/cuda/fake_cuda.hpp"

#include <cstdlib>
#include <cstring>

#include "gpu/device/cuda/driver_api.hpp"

using kvproof::tests::fake_cuda;
namespace driver = kvproof::gpu::driver;

extern "C" {

fake_cuda fake_cuda_state;
}

namespace {

// Notes the call; what the entry point returns.
int called(const char* name, bool needs_context = true) {
  fake_cuda& f = fake_cuda_state;
  f.calls.emplace_back(name);
  if (needs_context && f.context_depth == 0) ++f.calls_without_context;
  const auto found = f.fail.find(name);
  return found == f.fail.end() ? 0 : found->second;
}

char handles[16];  // handles are addresses in here

template <class Handle>
Handle handle(int which) {
  return reinterpret_cast<Handle>(&handles[which]);
}

std::map<const void*, std::string> entries;  // functions by handle

}  // namespace

extern "C" {

int cuInit(unsigned) { return called("cuInit", false); }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return called("cuDriverGetVersion", false);
}
int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {218, "CUDA_ERROR_INVALID_PTX"},     {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {999, "CUDA_ERROR_UNKNOWN"}};
  const auto found = names.find(error);
  if (found == names.end()) return 1;
  *name = found->second;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = fake_cuda_state.num_devices;
  return called("cuDeviceGetCount", false);
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 40;
  return called("cuDeviceGet", false);
}
int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, device == 41 ? "Fake GPU 1" : "Fake GPU 0", static_cast<std::size_t>(length));
  return called("cuDeviceGetName", false);
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1000 + attribute;
  return called("cuDeviceGetAttribute", false);
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{141} << 30;
  return called("cuDeviceTotalMem", false);
}
int cuDevicePrimaryCtxRetain(driver::context* context, int) {
  *context = handle<driver::context>(0);
  const int r = called("cuDevicePrimaryCtxRetain", false);
  if (r == 0) ++fake_cuda_state.retained;
  return r;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  --fake_cuda_state.retained;
  return called("cuDevicePrimaryCtxRelease", false);
}
int cuCtxPushCurrent_v2(driver::context context) {
  if (context != handle<driver::context>(0)) return 201;
  const int r = called("cuCtxPushCurrent", false);
  if (r == 0) ++fake_cuda_state.context_depth;
  return r;
}
int cuCtxPopCurrent_v2(driver::context* context) {
  *context = handle<driver::context>(0);
  --fake_cuda_state.context_depth;
  return called("cuCtxPopCurrent", false);
}
int cuCtxSynchronize() { return called("cuCtxSynchronize"); }

int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  const int r = called("cuMemAlloc");
  if (r != 0) return r;
  if (bytes == 0) return 1;
  *address = reinterpret_cast<std::uint64_t>(std::malloc(bytes));
  fake_cuda_state.allocations[*address] = bytes;
  return 0;
}
int cuMemFree_v2(std::uint64_t address) {
  const int r = called("cuMemFree");
  if (fake_cuda_state.allocations.erase(address) == 0) return 1;
  std::free(reinterpret_cast<void*>(address));
  return r;
}
int cuMemcpyHtoD_v2(std::uint64_t dst, const void* src, std::size_t bytes) {
  const int r = called("cuMemcpyHtoD");
  if (r == 0) std::memcpy(reinterpret_cast<void*>(dst), src, bytes);
  return r;
}
int cuMemcpyDtoH_v2(void* dst, std::uint64_t src, std::size_t bytes) {
  const int r = called("cuMemcpyDtoH");
  if (r == 0) std::memcpy(dst, reinterpret_cast<const void*>(src), bytes);
  return r;
}
int cuMemsetD8_v2(std::uint64_t dst, unsigned char value, std::size_t bytes) {
  const int r = called("cuMemsetD8");
  if (r == 0) std::memset(reinterpret_cast<void*>(dst), value, bytes);
  return r;
}

int cuModuleLoadDataEx(driver::module* module, const void* image, unsigned num_options,
                       int* options, void** values) {
  const int r = called("cuModuleLoadDataEx");
  fake_cuda_state.modules.emplace_back(static_cast<const char*>(image));
  if (r != 0 && num_options == 2 && options[0] == 5 && options[1] == 6) {
    std::strncpy(static_cast<char*>(values[0]), fake_cuda_state.jit_log.c_str(),
                 reinterpret_cast<std::size_t>(values[1]));
  }
  if (r == 0) ++fake_cuda_state.live_modules;
  *module = handle<driver::module>(1);
  return r;
}
int cuModuleUnload(driver::module) {
  --fake_cuda_state.live_modules;
  return called("cuModuleUnload");
}
int cuModuleGetFunction(driver::function* function, driver::module, const char* name) {
  *function = handle<driver::function>(2 + static_cast<int>(std::strlen(name)) % 8);
  entries[*function] = name;
  return called("cuModuleGetFunction");
}
int cuFuncGetAttribute(int* value, int attribute, driver::function) {
  *value = 100 + attribute;
  return called("cuFuncGetAttribute");
}
int cuFuncSetAttribute(driver::function, int attribute, int value) {
  fake_cuda_state.function_attributes.emplace_back(attribute, value);
  return called("cuFuncSetAttribute");
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* ctas, driver::function, int threads,
                                                std::size_t shared_bytes) {
  *ctas = 2048 / threads + static_cast<int>(shared_bytes);
  return called("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
int cuLaunchKernelEx(const driver::launch_config* config, driver::function function, void** params,
                     void**) {
  const int r = called("cuLaunchKernelEx");
  kvproof::tests::fake_launch launch;
  launch.entry = entries[function];
  launch.grid = {config->grid_x, config->grid_y, config->grid_z};
  launch.block = {config->block_x, config->block_y, config->block_z};
  launch.shared_bytes = config->shared_bytes;
  launch.stream = config->on;
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    const driver::launch_attribute& a = config->attributes[i];
    if (a.id == 6) launch.overlaps_previous = a.value.programmatic_stream_serialization == 1;
    if (a.id == 4) launch.cluster = {a.value.cluster.x, a.value.cluster.y, a.value.cluster.z};
  }
  const auto* const bytes = static_cast<const std::byte*>(params[0]);
  launch.params.assign(bytes, bytes + fake_cuda_state.param_bytes);
  fake_cuda_state.launches.push_back(launch);
  return r;
}

int cuStreamCreate(driver::stream* stream, unsigned flags) {
  *stream = handle<driver::stream>(11);
  fake_cuda_state.stream_flags.push_back(flags);
  ++fake_cuda_state.live_streams;
  return called("cuStreamCreate");
}
int cuStreamDestroy_v2(driver::stream) {
  --fake_cuda_state.live_streams;
  return called("cuStreamDestroy", false);
}
int cuEventCreate(driver::event* event, unsigned) {
  *event = handle<driver::event>(12 + fake_cuda_state.live_events++);
  return called("cuEventCreate");
}
int cuEventDestroy_v2(driver::event) {
  --fake_cuda_state.live_events;
  return called("cuEventDestroy", false);
}
int cuEventRecord(driver::event, driver::stream) { return called("cuEventRecord"); }
int cuEventSynchronize(driver::event) { return called("cuEventSynchronize"); }
int cuEventElapsedTime(float* ms, driver::event begin, driver::event end) {
  *ms = 0.25f * static_cast<float>(reinterpret_cast<char*>(end) - reinterpret_cast<char*>(begin));
  return called("cuEventElapsedTime");
}

}  // extern "C"
