// Finds the driver library and its entry points at run time, see driver_api.hpp.
#include "gpu/device/cuda/driver_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

namespace kvproof::gpu::driver {

const api* load(const char* library, std::string* why_not) {
  static std::mutex guard;
  static std::map<std::string, std::unique_ptr<api>>
      loaded;  // the libraries stay open for the life of the process
  const std::lock_guard lock(guard);
  if (const auto found = loaded.find(library); found != loaded.end()) return found->second.get();

  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    if (why_not != nullptr) *why_not = fmt::format("no CUDA driver ({} cannot be loaded)", library);
    return nullptr;
  }
  auto table = std::make_unique<api>();
  std::string missing;
  const auto find = [&](const char* symbol) {
    void* const address = ::dlsym(handle, symbol);
    if (address == nullptr) missing += fmt::format(" {}", symbol);
    return address;
  };
#define KVPROOF_DRIVER_FIND(member, symbol, parameters) \
  table->member = reinterpret_cast<result(*) parameters>(find(#symbol));
  KVPROOF_DRIVER_ENTRIES(KVPROOF_DRIVER_FIND)
#undef KVPROOF_DRIVER_FIND
  if (!missing.empty()) {
    if (why_not != nullptr)
      *why_not = fmt::format("the CUDA driver {} is too old: it lacks{}", library, missing);
    return nullptr;
  }
  return loaded.emplace(library, std::move(table)).first->second.get();
}

}  // namespace kvproof::gpu::driver
