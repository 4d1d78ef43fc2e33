// A device buffer between two canaries, poisoned before a kernel writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"

namespace kvproof::verify {

inline constexpr std::int64_t canary_bytes = 256;  // on each side; keeps the alignment of 256
inline constexpr auto canary_byte = std::byte{0x5a};
inline constexpr auto poison_byte = std::byte{0xcd};
inline constexpr std::uint32_t poison_word = 0xcdcdcdcdu;

class fenced_buffer {
 public:
  // Allocates and poisons. Throws device_error.
  fenced_buffer(gpu::device& dev, std::string name, std::int64_t size_bytes);

  [[nodiscard]] gpu::device_ptr get() const { return buffer_.get() + canary_bytes; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

  void poison();
  void clear();  // every byte 0
  template <typename T>
  void write(const std::vector<T>& v) {
    if (!v.empty()) device_->copy_to_device(get(), std::as_bytes(std::span(v)));
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read() const {
    return read<T>(size_bytes_ / static_cast<std::int64_t>(sizeof(T)));
  }
  template <typename T>
  [[nodiscard]] std::vector<T> read(std::int64_t count) const {
    std::vector<T> v(static_cast<std::size_t>(count));
    if (!v.empty()) device_->copy_to_host(std::as_writable_bytes(std::span(v)), get());
    return v;
  }

  // Empty, or which canary byte is gone: "out: canary overwritten at byte 512 of ...".
  [[nodiscard]] std::string broken_canary() const;

 private:
  gpu::device* device_;
  std::string name_;
  std::int64_t size_bytes_;
  gpu::device_buffer buffer_;
};

}  // namespace kvproof::verify
