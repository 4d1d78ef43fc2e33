// The one interface behind which kernels run: a CUDA GPU (gpu/device/cuda) or the PTX emulator
// (gpu/device/emulator). Memory is addressed by device_ptr; the host never dereferences it.
//
// Errors: every function throws spec::device_error. A fault of a kernel (out-of-bounds or
// misaligned access, trap, unknown instruction) is reported by launch() or by the next
// synchronize().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kvproof::gpu {

enum class device_kind : std::uint8_t { cuda, emulator };

struct device_info {
  device_kind kind;
  std::string name;           // "NVIDIA H200", "PTX emulator (sm_90a)"
  int compute_capability;     // 90
  int num_multiprocessors;    // SMs; the emulator reports a small fixed number
  std::int64_t memory_bytes;  // total device memory
  std::int64_t l2_bytes;
  int max_shared_bytes;  // dynamic shared memory that one CTA can opt in to
  std::string driver;    // driver version, empty on the emulator
};

// Address in device memory; 0 is null. Arithmetic is in bytes.
enum class device_ptr : std::uint64_t {};
[[nodiscard]] constexpr device_ptr operator+(device_ptr p, std::int64_t offset_bytes) {
  return static_cast<device_ptr>(static_cast<std::uint64_t>(p) +
                                 static_cast<std::uint64_t>(offset_bytes));
}

// A module as nvcc produced it: PTX text, and the cubin that ptxas made from exactly that PTX.
struct kernel_module {
  std::string_view name;  // "decode_k8v4"
  std::string_view ptx;
  std::span<const std::byte>
      cubin;  // may be empty: the CUDA device then asks the driver to compile the PTX
  // The bytes stay where and what they are while the program runs (embedded kernels): devices may
  // know the module by its address instead of reading it at every load.
  bool permanent = false;
};

struct extent3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct launch_shape {
  extent3 grid;
  extent3 block;
  extent3 cluster;
  std::uint32_t dynamic_shared_bytes = 0;
  // The kernel may be set up while the one before it in the stream still runs (programmatic
  // dependent launch); it must wait for that one itself, by griddepcontrol.wait. The emulator
  // ignores it.
  bool overlaps_previous = false;
};

// Facts about a loaded kernel, as far as the device knows them (the emulator: what the PTX says).
struct kernel_facts {
  int registers = 0;
  int static_shared_bytes = 0;
  int local_bytes = 0;
  int max_threads = 0;
};

// Handles are created by a device, belong to it and die with the shared_ptr.
class kernel {
 public:
  virtual ~kernel() = default;
  [[nodiscard]] virtual kernel_facts facts() const = 0;
  // CTAs of this kernel that fit on one multiprocessor at once.
  [[nodiscard]] virtual int max_ctas_per_multiprocessor(int threads,
                                                        int dynamic_shared_bytes) const = 0;
};
class stream {
 public:
  virtual ~stream() = default;
};
class event {
 public:
  virtual ~event() = default;
};

class device {
 public:
  virtual ~device() = default;

  [[nodiscard]] virtual device_info info() const = 0;

  // 256-byte aligned. The contents are poison: every byte 0xcd, which the emulator also tracks as
  // uninitialised. size_bytes may be 0 (a valid pointer to nothing).
  [[nodiscard]] virtual device_ptr allocate(std::int64_t size_bytes) = 0;
  virtual void deallocate(device_ptr p) noexcept = 0;

  // Synchronous copies and fills, ordered after everything launched before.
  virtual void copy_to_device(device_ptr dst, std::span<const std::byte> src) = 0;
  virtual void copy_to_host(std::span<std::byte> dst, device_ptr src) = 0;
  virtual void fill(device_ptr dst, std::byte value, std::int64_t size_bytes) = 0;

  // Looks `entry` up in the module, loading it on first use. Throws when there is no such entry.
  [[nodiscard]] virtual std::shared_ptr<kernel> load(const kernel_module& module,
                                                     std::string_view entry) = 0;

  [[nodiscard]] virtual std::shared_ptr<stream> create_stream() = 0;
  [[nodiscard]] virtual std::shared_ptr<event> create_event() = 0;
  virtual void record(event& e, stream* s) = 0;
  [[nodiscard]] virtual double elapsed_us(event& begin, event& end) = 0;  // synchronizes with `end`

  // Asynchronous. `params` is the bytes of the kernel's single parameter struct, passed by value.
  // A null stream is the default stream. An empty grid is a contract_error, not a silent no-op.
  virtual void launch(kernel& k, const launch_shape& shape, std::span<const std::byte> params,
                      stream* s = nullptr) = 0;
  virtual void synchronize() = 0;
};

// The CUDA device `ordinal`, through the driver library loaded at run time; null when there is no
// driver or no such device (`why_not` then says why). Throws when a device exists but is broken.
[[nodiscard]] std::unique_ptr<device> open_cuda_device(int ordinal, std::string* why_not = nullptr);
[[nodiscard]] int count_cuda_devices(std::string* why_not = nullptr);

// The PTX emulator. Always available.
[[nodiscard]] std::unique_ptr<device> open_emulator();

// Owns one allocation.
class device_buffer {
 public:
  device_buffer() = default;
  device_buffer(device& dev, std::int64_t size_bytes)
      : device_(&dev), ptr_(dev.allocate(size_bytes)), size_bytes_(size_bytes) {}
  device_buffer(device_buffer&& other) noexcept { swap(other); }
  device_buffer& operator=(device_buffer&& other) noexcept {
    device_buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  device_buffer(const device_buffer&) = delete;
  device_buffer& operator=(const device_buffer&) = delete;
  ~device_buffer() {
    if (device_ != nullptr) device_->deallocate(ptr_);
  }

  [[nodiscard]] device_ptr get() const { return ptr_; }
  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

 private:
  void swap(device_buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(ptr_, other.ptr_);
    std::swap(size_bytes_, other.size_bytes_);
  }
  device* device_ = nullptr;
  device_ptr ptr_{};
  std::int64_t size_bytes_ = 0;
};

}  // namespace kvproof::gpu
