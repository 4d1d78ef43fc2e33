// A CUDA GPU through the driver API. One primary context; every call makes it current for its own
// duration, and what the device object itself keeps is guarded, so a device may be used from
// several threads. Kernels run asynchronously: a fault shows at the next synchronising call, which
// names the kernels launched since the one before.
#include "gpu/device/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "gpu/device/cuda/driver_api.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

constexpr const char* driver_library = "libcuda.so.1";
constexpr std::byte poison{0xcd};

static_assert(sizeof(driver::launch_attribute) == 72 &&
              offsetof(driver::launch_attribute, value) == 8);
static_assert(sizeof(driver::launch_config) == 56 && offsetof(driver::launch_config, on) == 32 &&
              offsetof(driver::launch_config, attributes) == 40);

std::string name_of_error(const driver::api& cu, driver::result r) {
  const char* name = nullptr;
  return cu.error_name(r, &name) == driver::success && name != nullptr ? name
                                                                       : fmt::format("error {}", r);
}

std::string_view remedy_of(driver::result r) {
  switch (r) {
    case driver::out_of_memory:
      return "close other programs on the GPU or choose a smaller case";
    case driver::no_binary_for_gpu:
      return "the kernels are built for sm_90a: use such a GPU or the emulator";
    case driver::not_found:
      return "the module has no entry of this name: compare the kernel table with the PTX";
    case driver::launch_out_of_resources:
      return "the CTA needs more registers, threads or shared memory than there are";
    case driver::illegal_address:
    case driver::launch_timeout:
    case driver::device_assert:
    case driver::illegal_instruction:
    case driver::misaligned_address:
    case driver::launch_failed:
      return "a kernel broke and the device is lost to this process: run the case on the emulator, "
             "which names the instruction";
    default:
      return "see nvidia-smi for the state of the GPU";
  }
}

void check(const driver::api& cu, driver::result r, std::string_view call, std::string_view what) {
  if (r == driver::success) return;
  throw spec::device_error(fmt::format("CUDA {} failed with {} ({}); {}", call,
                                       name_of_error(cu, r), what, remedy_of(r)));
}

// Initialised driver with at least one device, or null with a reason. Throws when a driver is there
// but broken.
const driver::api* open_driver(const char* library, int* count, std::string* why_not) {
  *count = 0;
  const driver::api* const cu = driver::load(library, why_not);
  if (cu == nullptr) return nullptr;
  const driver::result r = cu->init(0);
  if (r == driver::no_device || r == driver::stub_library) {
    if (why_not != nullptr) {
      *why_not = r == driver::no_device ? "the CUDA driver finds no device"
                                        : "the CUDA driver library is a stub to link against";
    }
    return nullptr;
  }
  check(*cu, r, "cuInit", "the driver library is present but does not start");
  check(*cu, cu->device_count(count), "cuDeviceGetCount", "counting devices");
  if (*count == 0 && why_not != nullptr) *why_not = "the CUDA driver finds no device";
  return cu;
}

class cuda_context {
 public:
  cuda_context(const driver::api& api, driver::device id) : cu(api), id_(id) {
    check(cu, cu.context_retain(&context_, id), "cuDevicePrimaryCtxRetain", "opening the device");
  }
  ~cuda_context() { cu.context_release(id_); }
  cuda_context(const cuda_context&) = delete;
  cuda_context& operator=(const cuda_context&) = delete;

  // Makes the context current for the life of the object.
  class current {
   public:
    explicit current(const cuda_context& c) : cu_(c.cu) {
      check(cu_, cu_.context_push(c.context_), "cuCtxPushCurrent", "making the context current");
    }
    ~current() {
      driver::context ignored = nullptr;
      cu_.context_pop(&ignored);
    }
    current(const current&) = delete;
    current& operator=(const current&) = delete;

   private:
    const driver::api& cu_;
  };

  const driver::api& cu;

 private:
  driver::device id_;
  driver::context context_ = nullptr;
};
using shared_context = std::shared_ptr<cuda_context>;

class cuda_stream final : public stream {
 public:
  explicit cuda_stream(shared_context c) : context_(std::move(c)) {
    const cuda_context::current use(*context_);
    // Ordered with the default stream, where copies and fills run.
    check(context_->cu, context_->cu.stream_create(&handle, 0), "cuStreamCreate", "a stream");
  }
  ~cuda_stream() override { context_->cu.stream_destroy(handle); }
  driver::stream handle = nullptr;

 private:
  shared_context context_;
};

class cuda_event final : public event {
 public:
  explicit cuda_event(shared_context c) : context_(std::move(c)) {
    const cuda_context::current use(*context_);
    check(context_->cu, context_->cu.event_create(&handle, 0), "cuEventCreate", "a timed event");
  }
  ~cuda_event() override { context_->cu.event_destroy(handle); }
  driver::event handle = nullptr;

 private:
  shared_context context_;
};

class cuda_kernel final : public kernel {
 public:
  cuda_kernel(shared_context c, driver::function f, std::string name)
      : handle(f), entry(std::move(name)), context_(std::move(c)) {}

  [[nodiscard]] kernel_facts facts() const override {
    const cuda_context::current use(*context_);
    return {attribute(driver::function_registers), attribute(driver::function_shared_bytes),
            attribute(driver::function_local_bytes), attribute(driver::function_max_threads)};
  }
  [[nodiscard]] int max_ctas_per_multiprocessor(int threads,
                                                int dynamic_shared_bytes) const override {
    const std::lock_guard lock(guard_);
    if (threads == asked_threads_ && dynamic_shared_bytes == asked_shared_) return answered_ctas_;
    const cuda_context::current use(*context_);
    allow_shared(dynamic_shared_bytes);
    int ctas = 0;
    check(context_->cu,
          context_->cu.occupancy(&ctas, handle, threads,
                                 static_cast<std::size_t>(dynamic_shared_bytes)),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", entry);
    asked_threads_ = threads;
    asked_shared_ = dynamic_shared_bytes;
    answered_ctas_ = ctas;
    return ctas;
  }
  // The context must be current. Dynamic shared memory beyond 48 KB must be asked for.
  void allow_shared(int bytes) const {
    if (bytes <= allowed_shared_) return;
    check(context_->cu,
          context_->cu.function_set(handle, driver::function_max_dynamic_shared, bytes),
          "cuFuncSetAttribute",
          fmt::format("{} bytes of dynamic shared memory for {}", bytes, entry));
    allowed_shared_ = bytes;
  }
  driver::function handle;
  std::string entry;

 private:
  [[nodiscard]] int attribute(int which) const {
    int value = 0;
    check(context_->cu, context_->cu.function_get(&value, which, handle), "cuFuncGetAttribute",
          entry);
    return value;
  }
  shared_context context_;
  mutable std::atomic<int> allowed_shared_ = 48 * 1024;
  mutable std::mutex guard_;  // of the last question of max_ctas_per_multiprocessor
  mutable int asked_threads_ = 0, asked_shared_ = 0, answered_ctas_ = 0;
};

class cuda_device final : public device {
 public:
  cuda_device(const driver::api& cu, int ordinal) : cu_(cu) {
    check(cu, cu.device_get(&id_, ordinal), "cuDeviceGet", fmt::format("device {}", ordinal));
    context_ = std::make_shared<cuda_context>(cu, id_);
    std::array<char, 256> name{};
    check(cu, cu.device_name(name.data(), static_cast<int>(name.size()), id_), "cuDeviceGetName",
          "reading the name");
    std::size_t memory = 0;
    check(cu, cu.device_memory(&memory, id_), "cuDeviceTotalMem", "reading the memory size");
    int version = 0;
    check(cu, cu.driver_version(&version), "cuDriverGetVersion", "reading the version");
    info_ = {device_kind::cuda,
             name.data(),
             10 * attribute(driver::attribute_capability_major) +
                 attribute(driver::attribute_capability_minor),
             attribute(driver::attribute_multiprocessor_count),
             static_cast<std::int64_t>(memory),
             attribute(driver::attribute_l2_cache_size),
             attribute(driver::attribute_max_shared_memory_optin),
             fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10)};
  }
  ~cuda_device() override {
    try {
      const cuda_context::current use(*context_);
      for (const auto& [image, module] : modules_) cu_.module_unload(module);
    } catch (const spec::device_error&) {
      return;  // as in deallocate()
    }
  }

  [[nodiscard]] device_info info() const override { return info_; }

  [[nodiscard]] device_ptr allocate(std::int64_t size_bytes) override {
    if (size_bytes < 0) throw spec::contract_error(fmt::format("allocate: {} bytes", size_bytes));
    const cuda_context::current use(*context_);
    driver::device_address address = 0;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 1));
    check(cu_, cu_.memory_allocate(&address, size), "cuMemAlloc",
          fmt::format("{} bytes", size_bytes));
    const driver::result r = cu_.fill_bytes(address, std::to_integer<unsigned char>(poison), size);
    if (r != driver::success) cu_.memory_free(address);
    check(cu_, r, "cuMemsetD8", pending());
    return device_ptr{address};
  }
  void deallocate(device_ptr p) noexcept override {
    try {
      const cuda_context::current use(*context_);
      cu_.memory_free(static_cast<driver::device_address>(p));
    } catch (const spec::device_error&) {
      return;  // a context that cannot be made current is lost, and its memory with it
    }
  }
  void copy_to_device(device_ptr dst, std::span<const std::byte> src) override {
    if (src.empty()) return;
    const cuda_context::current use(*context_);
    finish("copy to the device");
    check(cu_, cu_.copy_to_device(static_cast<driver::device_address>(dst), src.data(), src.size()),
          "cuMemcpyHtoD", pending());
    finish("copy to the device");  // the driver may return while it still moves a staged copy
  }
  void copy_to_host(std::span<std::byte> dst, device_ptr src) override {
    if (dst.empty()) return;
    const cuda_context::current use(*context_);
    finish("copy to the host");
    check(cu_, cu_.copy_to_host(dst.data(), static_cast<driver::device_address>(src), dst.size()),
          "cuMemcpyDtoH", pending());
  }
  void fill(device_ptr dst, std::byte value, std::int64_t size_bytes) override {
    if (size_bytes == 0) return;
    const cuda_context::current use(*context_);
    finish("fill");
    check(
        cu_,
        cu_.fill_bytes(static_cast<driver::device_address>(dst),
                       std::to_integer<unsigned char>(value), static_cast<std::size_t>(size_bytes)),
        "cuMemsetD8", pending());
    finish("fill");
  }

  [[nodiscard]] std::shared_ptr<kernel> load(const kernel_module& module,
                                             std::string_view entry) override {
    const std::lock_guard lock(guard_);
    const std::string name(entry);
    std::shared_ptr<kernel>* known = nullptr;
    if (module.permanent) {
      known = &permanent_[{module.ptx.data(), name}];
      if (*known != nullptr) return *known;
    }
    const cuda_context::current use(*context_);
    driver::function function = nullptr;
    check(cu_, cu_.module_function(&function, module_of(module), name.c_str()),
          "cuModuleGetFunction", fmt::format("entry {} of module {}", entry, module.name));
    const auto k = std::make_shared<cuda_kernel>(context_, function, name);
    if (known != nullptr) *known = k;
    return k;
  }

  [[nodiscard]] std::shared_ptr<stream> create_stream() override {
    return std::make_shared<cuda_stream>(context_);
  }
  [[nodiscard]] std::shared_ptr<event> create_event() override {
    return std::make_shared<cuda_event>(context_);
  }
  void record(event& e, stream* s) override {
    const cuda_context::current use(*context_);
    check(cu_, cu_.event_record(static_cast<cuda_event&>(e).handle, handle_of(s)), "cuEventRecord",
          pending());
  }
  [[nodiscard]] double elapsed_us(event& begin, event& end) override {
    const cuda_context::current use(*context_);
    check(cu_, cu_.event_synchronize(static_cast<cuda_event&>(end).handle), "cuEventSynchronize",
          pending());
    float ms = 0;
    check(cu_,
          cu_.event_elapsed(&ms, static_cast<cuda_event&>(begin).handle,
                            static_cast<cuda_event&>(end).handle),
          "cuEventElapsedTime", pending());
    return 1000.0 * double{ms};
  }

  void launch(kernel& k, const launch_shape& shape, std::span<const std::byte> params,
              stream* s) override {
    auto& f = static_cast<cuda_kernel&>(k);
    if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) {
      throw spec::contract_error(fmt::format("launch of {} with an empty grid", f.entry));
    }
    const cuda_context::current use(*context_);
    f.allow_shared(static_cast<int>(shape.dynamic_shared_bytes));
    std::array<driver::launch_attribute, 2> attributes{};
    unsigned num_attributes = 0;
    if (shape.cluster.x * shape.cluster.y * shape.cluster.z > 1) {
      driver::launch_attribute& a = attributes[num_attributes++];
      a.id = driver::launch_attribute_cluster_dimension;
      a.value.cluster = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
    }
    if (shape.overlaps_previous) {
      driver::launch_attribute& a = attributes[num_attributes++];
      a.id = driver::launch_attribute_programmatic_stream_serialization;
      a.value.programmatic_stream_serialization = 1;
    }
    const driver::launch_config config{shape.grid.x,
                                       shape.grid.y,
                                       shape.grid.z,
                                       shape.block.x,
                                       shape.block.y,
                                       shape.block.z,
                                       shape.dynamic_shared_bytes,
                                       handle_of(s),
                                       num_attributes > 0 ? attributes.data() : nullptr,
                                       num_attributes};
    // The driver copies the struct during the call and does not write to it.
    std::array<void*, 1> arguments = {const_cast<std::byte*>(params.data())};
    remember(f.entry);
    check(
        cu_, cu_.launch(&config, f.handle, arguments.data(), nullptr), "cuLaunchKernelEx",
        fmt::format("{}, grid {}x{}x{}, block {}, {} bytes of shared memory", f.entry, shape.grid.x,
                    shape.grid.y, shape.grid.z, shape.block.x, shape.dynamic_shared_bytes));
  }
  void synchronize() override {
    const cuda_context::current use(*context_);
    finish("synchronize");
  }

 private:
  [[nodiscard]] int attribute(int which) const {
    int value = 0;
    check(cu_, cu_.device_attribute(&value, which, id_), "cuDeviceGetAttribute",
          fmt::format("attribute {}", which));
    return value;
  }
  [[nodiscard]] static driver::stream handle_of(stream* s) {
    return s == nullptr ? nullptr : static_cast<cuda_stream*>(s)->handle;
  }
  void remember(const std::string& entry) {
    const std::lock_guard lock(guard_);
    if (std::find(unfinished_.begin(), unfinished_.end(), entry) == unfinished_.end()) {
      unfinished_.push_back(entry);
    }
  }
  [[nodiscard]] std::string pending() const {
    const std::lock_guard lock(guard_);
    return unfinished_.empty() ? "no kernel pending"
                               : fmt::format("kernels since the last synchronisation: {}",
                                             fmt::join(unfinished_, ", "));
  }
  void finish(std::string_view why) {
    check(cu_, cu_.context_synchronize(), "cuCtxSynchronize",
          fmt::format("{}; {}", why, pending()));
    const std::lock_guard lock(guard_);
    unfinished_.clear();
  }

  // Modules are known by what they hold, not by where it lies: the caller may replace it.
  driver::module module_of(const kernel_module& m) {
    const std::string_view image =
        m.cubin.empty()
            ? m.ptx
            : std::string_view(reinterpret_cast<const char*>(m.cubin.data()), m.cubin.size());
    if (const auto found = modules_.find(image); found != modules_.end()) return found->second;
    driver::module module = nullptr;
    if (!m.cubin.empty()) {
      check(cu_, cu_.module_load(&module, m.cubin.data(), 0, nullptr, nullptr),
            "cuModuleLoadDataEx", fmt::format("cubin of module {}", m.name));
    } else {
      module = compile(m);
    }
    modules_.emplace(image, module);
    return module;
  }

  [[nodiscard]] driver::module compile(const kernel_module& m) const {
    const std::string text(m.ptx);  // the driver wants a terminated string
    std::array<char, 8192> log{};
    std::array<int, 2> options = {driver::jit_error_log_buffer, driver::jit_error_log_buffer_size};
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
    driver::module module = nullptr;
    const driver::result r =
        cu_.module_load(&module, text.c_str(), static_cast<unsigned>(options.size()),
                        options.data(), values.data());
    if (r != driver::success) {
      log.back() = 0;
      std::string line = log.data();
      std::replace(line.begin(), line.end(), '\n', ' ');
      check(cu_, r, "cuModuleLoadDataEx", fmt::format("PTX of module {}: {}", m.name, line));
    }
    return module;
  }

  const driver::api& cu_;
  driver::device id_ = 0;
  shared_context context_;
  device_info info_{};
  mutable std::mutex guard_;                                    // of what follows
  std::map<std::string, driver::module, std::less<>> modules_;  // by cubin or PTX
  // Kernels of permanent modules, by the address of the PTX and entry.
  std::map<std::pair<const void*, std::string>, std::shared_ptr<kernel>> permanent_;
  std::vector<std::string> unfinished_;  // kernels launched since the last synchronisation
};

}  // namespace

std::unique_ptr<device> open_cuda_device(int ordinal, std::string* why_not, const char* library) {
  int count = 0;
  const driver::api* const cu = open_driver(library, &count, why_not);
  if (cu == nullptr || count == 0) return nullptr;
  if (ordinal < 0 || ordinal >= count) {
    if (why_not != nullptr)
      *why_not = fmt::format("there is no device {}; the driver has {}", ordinal, count);
    return nullptr;
  }
  return std::make_unique<cuda_device>(*cu, ordinal);
}

int count_cuda_devices(std::string* why_not, const char* library) {
  int count = 0;
  static_cast<void>(open_driver(library, &count, why_not));
  return count;
}

std::unique_ptr<device> open_cuda_device(int ordinal, std::string* why_not) {
  return open_cuda_device(ordinal, why_not, driver_library);
}
int count_cuda_devices(std::string* why_not) { return count_cuda_devices(why_not, driver_library); }

}  // namespace kvproof::gpu
