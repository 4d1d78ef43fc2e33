// The part of the CUDA driver API that kvproof calls, declared here so that neither headers nor
// libraries of CUDA are needed to build. Names, types and values are those of cuda.h; entry points
// carry the suffix that cuda.h maps to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvproof::gpu::driver {

using result = int;                    // CUresult
using device = int;                    // CUdevice
using device_address = std::uint64_t;  // CUdeviceptr
struct context_object;
struct module_object;
struct function_object;
struct stream_object;
struct event_object;
using context = context_object*;
using module = module_object*;
using function = function_object*;
using stream = stream_object*;
using event = event_object*;

inline constexpr result success = 0;
// CUresult
inline constexpr result out_of_memory = 2;
inline constexpr result stub_library = 34;
inline constexpr result no_device = 100;
inline constexpr result no_binary_for_gpu = 209;
inline constexpr result not_found = 500;
inline constexpr result illegal_address = 700;
inline constexpr result launch_out_of_resources = 701;
inline constexpr result launch_timeout = 702;
inline constexpr result device_assert = 710;
inline constexpr result illegal_instruction = 715;
inline constexpr result misaligned_address = 716;
inline constexpr result launch_failed = 719;

// CUdevice_attribute
inline constexpr int attribute_multiprocessor_count = 16;
inline constexpr int attribute_l2_cache_size = 38;
inline constexpr int attribute_capability_major = 75;
inline constexpr int attribute_capability_minor = 76;
inline constexpr int attribute_max_shared_memory_optin = 97;
// CUfunction_attribute
inline constexpr int function_max_threads = 0;
inline constexpr int function_shared_bytes = 1;
inline constexpr int function_local_bytes = 3;
inline constexpr int function_registers = 4;
inline constexpr int function_max_dynamic_shared = 8;
// CUjit_option
inline constexpr int jit_error_log_buffer = 5;
inline constexpr int jit_error_log_buffer_size = 6;

// CUlaunchAttribute, CUlaunchConfig (layout checked by static_assert in cuda_device.cpp)
inline constexpr int launch_attribute_cluster_dimension = 4;
inline constexpr int launch_attribute_programmatic_stream_serialization = 6;
struct launch_attribute {
  int id;
  char pad[4];
  union alignas(8) {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_stream_serialization;
  } value;
};
struct launch_config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  stream on;
  launch_attribute* attributes;
  unsigned num_attributes;
};

// One function pointer per entry point: KVPROOF_DRIVER_ENTRY(member, symbol, parameters).
#define KVPROOF_DRIVER_ENTRIES(KVPROOF_DRIVER_ENTRY)                                               \
  KVPROOF_DRIVER_ENTRY(init, cuInit, (unsigned))                                                   \
  KVPROOF_DRIVER_ENTRY(driver_version, cuDriverGetVersion, (int*))                                 \
  KVPROOF_DRIVER_ENTRY(error_name, cuGetErrorName, (result, const char**))                         \
  KVPROOF_DRIVER_ENTRY(device_count, cuDeviceGetCount, (int*))                                     \
  KVPROOF_DRIVER_ENTRY(device_get, cuDeviceGet, (device*, int))                                    \
  KVPROOF_DRIVER_ENTRY(device_name, cuDeviceGetName, (char*, int, device))                         \
  KVPROOF_DRIVER_ENTRY(device_attribute, cuDeviceGetAttribute, (int*, int, device))                \
  KVPROOF_DRIVER_ENTRY(device_memory, cuDeviceTotalMem_v2, (std::size_t*, device))                 \
  KVPROOF_DRIVER_ENTRY(context_retain, cuDevicePrimaryCtxRetain, (context*, device))               \
  KVPROOF_DRIVER_ENTRY(context_release, cuDevicePrimaryCtxRelease_v2, (device))                    \
  KVPROOF_DRIVER_ENTRY(context_push, cuCtxPushCurrent_v2, (context))                               \
  KVPROOF_DRIVER_ENTRY(context_pop, cuCtxPopCurrent_v2, (context*))                                \
  KVPROOF_DRIVER_ENTRY(context_synchronize, cuCtxSynchronize, ())                                  \
  KVPROOF_DRIVER_ENTRY(memory_allocate, cuMemAlloc_v2, (device_address*, std::size_t))             \
  KVPROOF_DRIVER_ENTRY(memory_free, cuMemFree_v2, (device_address))                                \
  KVPROOF_DRIVER_ENTRY(copy_to_device, cuMemcpyHtoD_v2,                                            \
                       (device_address, const void*, std::size_t))                                 \
  KVPROOF_DRIVER_ENTRY(copy_to_host, cuMemcpyDtoH_v2, (void*, device_address, std::size_t))        \
  KVPROOF_DRIVER_ENTRY(fill_bytes, cuMemsetD8_v2, (device_address, unsigned char, std::size_t))    \
  KVPROOF_DRIVER_ENTRY(module_load, cuModuleLoadDataEx,                                            \
                       (module*, const void*, unsigned, int*, void**))                             \
  KVPROOF_DRIVER_ENTRY(module_unload, cuModuleUnload, (module))                                    \
  KVPROOF_DRIVER_ENTRY(module_function, cuModuleGetFunction, (function*, module, const char*))     \
  KVPROOF_DRIVER_ENTRY(function_get, cuFuncGetAttribute, (int*, int, function))                    \
  KVPROOF_DRIVER_ENTRY(function_set, cuFuncSetAttribute, (function, int, int))                     \
  KVPROOF_DRIVER_ENTRY(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                     \
                       (int*, function, int, std::size_t))                                         \
  KVPROOF_DRIVER_ENTRY(launch, cuLaunchKernelEx, (const launch_config*, function, void**, void**)) \
  KVPROOF_DRIVER_ENTRY(stream_create, cuStreamCreate, (stream*, unsigned))                         \
  KVPROOF_DRIVER_ENTRY(stream_destroy, cuStreamDestroy_v2, (stream))                               \
  KVPROOF_DRIVER_ENTRY(event_create, cuEventCreate, (event*, unsigned))                            \
  KVPROOF_DRIVER_ENTRY(event_destroy, cuEventDestroy_v2, (event))                                  \
  KVPROOF_DRIVER_ENTRY(event_record, cuEventRecord, (event, stream))                               \
  KVPROOF_DRIVER_ENTRY(event_synchronize, cuEventSynchronize, (event))                             \
  KVPROOF_DRIVER_ENTRY(event_elapsed, cuEventElapsedTime, (float*, event, event))

struct api {
#define KVPROOF_DRIVER_MEMBER(member, symbol, parameters) result(*member) parameters = nullptr;
  KVPROOF_DRIVER_ENTRIES(KVPROOF_DRIVER_MEMBER)
#undef KVPROOF_DRIVER_MEMBER
};

// Loads the library and all entry points; null with a reason when it is absent or too old.
[[nodiscard]] const api* load(const char* library, std::string* why_not);

}  // namespace kvproof::gpu::driver
