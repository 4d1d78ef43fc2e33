// See stopwatch.hpp.
#include "bench/stopwatch.hpp"

#include <algorithm>
#include <vector>

#include "bench/memory_kernels.hpp"

namespace kvproof::bench {
namespace {

constexpr std::int64_t gate_size_bytes = std::int64_t{4} << 30;  // about 1 ms
constexpr int measurements = 9;

}  // namespace

stopwatch::stopwatch(gpu::device& dev)
    : dev_(dev),
      timed_(dev.info().kind == gpu::device_kind::cuda),
      data_(dev, timed_ ? gate_size_bytes : 0),
      sink_(dev, 256) {}

void stopwatch::read() const {
  launch_read(dev_, {static_cast<std::uint64_t>(data_.get()),
                     static_cast<std::uint64_t>(sink_.get()), data_.size_bytes() / 16});
}

timing stopwatch::time(int launches, const std::function<void(std::int64_t)>& launch) const {
  const auto begin = dev_.create_event(), end = dev_.create_event();
  std::vector<double> us;
  std::int64_t next = 0;
  for (int i = 0; i < (timed_ ? measurements : 1); ++i) {
    if (timed_) read();
    dev_.record(*begin, nullptr);
    for (int n = 0; n < launches; ++n) launch(next++);
    dev_.record(*end, nullptr);
    us.push_back(dev_.elapsed_us(*begin, *end) / launches);
  }
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us.back()};
}

double stopwatch::read_peak() const {
  constexpr int launches = 4;
  read();
  dev_.synchronize();
  return static_cast<double>(data_.size_bytes()) /
         time(launches, [&](std::int64_t) { read(); }).median_us;
}

}  // namespace kvproof::bench
