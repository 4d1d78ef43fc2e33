// Data in device memory: seeded values, pages made by the reference, page tables; and its
// comparison with what the reference says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "reference/attention/score_update.hpp"
#include "reference/formats/page_codec.hpp"
#include "reference/spec/kv_format.hpp"
#include "verify/compare.hpp"

namespace kvproof::bench {

// fp16 numbers in [-2, 2).
[[nodiscard]] std::vector<reference::half_bits> random_halves(std::int64_t count,
                                                              std::uint64_t seed);

// Distinct pages of one format, one behind the other.
class sample_pages {
 public:
  static constexpr std::int64_t count = 64;

  sample_pages(const spec::kv_format& format, int head_dim);

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // A pool that repeats them holds this page under page id `id`.
  [[nodiscard]] std::span<const std::byte> page(std::int64_t id) const {
    return std::span(bytes_).subspan(static_cast<std::size_t>(id % count) * page_bytes_,
                                     page_bytes_);
  }

 private:
  std::size_t page_bytes_;
  std::vector<std::byte> bytes_;
};

// Rows of fp16 that repeat after a prime number of them, so that no two pages or heads hold the
// same.
class repeating_rows {
 public:
  repeating_rows(int head_dim, std::uint64_t seed);

  // The first `count` rows.
  [[nodiscard]] gpu::device_buffer on_device(gpu::device& dev, std::int64_t count) const;
  void append_row(std::int64_t row, std::vector<reference::half_bits>& to) const;

 private:
  std::int64_t head_dim_;
  std::vector<reference::half_bits> values_;
};

// The numbers from `first` on, in random order, as many as `ids` holds.
void shuffled_ids(std::span<std::int32_t> ids, std::int64_t first, std::uint64_t seed);

template <typename T>
[[nodiscard]] gpu::device_buffer uploaded(gpu::device& dev, const std::vector<T>& values) {
  gpu::device_buffer buffer(dev, std::ssize(values) * static_cast<std::int64_t>(sizeof(T)));
  dev.copy_to_device(buffer.get(), std::as_bytes(std::span(values)));
  return buffer;
}

template <typename T>
[[nodiscard]] std::vector<T> downloaded(gpu::device& dev, gpu::device_ptr from,
                                        std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  dev.copy_to_host(std::as_writable_bytes(std::span(values)), from);
  return values;
}

// A buffer of size_bytes that holds `pattern` again and again; both are multiples of 16 bytes.
[[nodiscard]] gpu::device_buffer repeated(gpu::device& dev, std::span<const std::byte> pattern,
                                          std::int64_t size_bytes);

// Compares floats of one KV head on the device, `what`, as bits. Empty when equal.
[[nodiscard]] std::string float_difference(gpu::device& dev, std::int64_t kv_head,
                                           const std::string& what,
                                           const std::vector<verify::axis>& axes,
                                           const std::vector<float>& expected, gpu::device_ptr at);

// Running significance after `updates` score updates of a head from 0, each with these logits.
[[nodiscard]] std::vector<float> running_after(int updates,
                                               const reference::score_update_input& head);

}  // namespace kvproof::bench
