// Times launches by CUDA events. Each measurement queues a long read of memory first (the gate), so
// that all launches are in the queue before the first one starts: the host's launch overhead is not
// in the number, and the cache holds nothing of the data that is measured.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu/device/device.hpp"

namespace kvproof::bench {

struct timing {
  double median_us, fastest_us, slowest_us;  // of one launch
};

class stopwatch {
 public:
  explicit stopwatch(gpu::device& dev);

  // Several measurements of `launches` launches each; `launch` gets 0, 1, 2, ... and goes on
  // counting from one measurement to the next.
  [[nodiscard]] timing time(int launches, const std::function<void(std::int64_t)>& launch) const;

  // Bytes per us of a kernel that only reads, from a buffer of gate_bytes.
  [[nodiscard]] double read_peak() const;

  // Device memory that the gate holds; 0 on the emulator, which has no gate: its times mean
  // nothing.
  [[nodiscard]] std::int64_t gate_bytes() const { return data_.size_bytes(); }

 private:
  void read() const;

  gpu::device& dev_;
  bool timed_;
  gpu::device_buffer data_, sink_;
};

}  // namespace kvproof::bench
