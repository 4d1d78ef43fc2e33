// Arrays in device memory for tests, with canaries behind the end, and a device that launches
// decode with a chosen grid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/device/device.hpp"

namespace kvproof::tests {

template <typename T>
class device_array {
 public:
  device_array(gpu::device& dev, std::vector<T> values)
      : device_(dev),
        size_(values.size()),
        buffer_(dev, static_cast<std::int64_t>(size_ * sizeof(T)) + canary_bytes) {
    std::vector<std::byte> bytes(size_ * sizeof(T) + canary_bytes, canary);
    if (size_ > 0) std::memcpy(bytes.data(), values.data(), size_ * sizeof(T));
    dev.copy_to_device(buffer_.get(), bytes);
  }

  [[nodiscard]] gpu::device_ptr get() const { return buffer_.get(); }
  [[nodiscard]] std::vector<T> read() const {
    const std::vector<std::byte> bytes = read_all();
    std::vector<T> values(size_);
    if (size_ > 0) std::memcpy(values.data(), bytes.data(), size_ * sizeof(T));
    return values;
  }
  [[nodiscard]] bool canaries_live() const {
    const std::vector<std::byte> bytes = read_all();
    return std::all_of(bytes.end() - canary_bytes, bytes.end(),
                       [](std::byte b) { return b == canary; });
  }

 private:
  static constexpr std::int64_t canary_bytes = 256;
  static constexpr std::byte canary{0x5a};

  [[nodiscard]] std::vector<std::byte> read_all() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer_.size_bytes()));
    device_.copy_to_host(bytes, buffer_.get());
    return bytes;
  }

  gpu::device& device_;
  std::size_t size_;
  gpu::device_buffer buffer_;
};

// Forwards to another device, with grid.x replaced unless `grid` is 0.
class regridding_device : public gpu::device {
 public:
  explicit regridding_device(gpu::device& under) : under_(under) {}
  std::uint32_t grid = 0;

  [[nodiscard]] gpu::device_info info() const override { return under_.info(); }
  [[nodiscard]] gpu::device_ptr allocate(std::int64_t n) override { return under_.allocate(n); }
  void deallocate(gpu::device_ptr p) noexcept override { under_.deallocate(p); }
  void copy_to_device(gpu::device_ptr d, std::span<const std::byte> s) override {
    under_.copy_to_device(d, s);
  }
  void copy_to_host(std::span<std::byte> d, gpu::device_ptr s) override {
    under_.copy_to_host(d, s);
  }
  void fill(gpu::device_ptr d, std::byte v, std::int64_t n) override { under_.fill(d, v, n); }
  [[nodiscard]] std::shared_ptr<gpu::kernel> load(const gpu::kernel_module& m,
                                                  std::string_view e) override {
    return under_.load(m, e);
  }
  [[nodiscard]] std::shared_ptr<gpu::stream> create_stream() override {
    return under_.create_stream();
  }
  [[nodiscard]] std::shared_ptr<gpu::event> create_event() override {
    return under_.create_event();
  }
  void record(gpu::event& e, gpu::stream* s) override { under_.record(e, s); }
  [[nodiscard]] double elapsed_us(gpu::event& b, gpu::event& e) override {
    return under_.elapsed_us(b, e);
  }
  void launch(gpu::kernel& k, const gpu::launch_shape& shape, std::span<const std::byte> params,
              gpu::stream* s) override {
    gpu::launch_shape changed = shape;
    if (grid != 0) changed.grid.x = grid;
    under_.launch(k, changed, params, s);
  }
  void synchronize() override { under_.synchronize(); }

 private:
  gpu::device& under_;
};

}  // namespace kvproof::tests
