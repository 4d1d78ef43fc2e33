// Canaries and poison, see fenced_buffer.hpp.
#include "verify/fenced_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvproof::verify {

fenced_buffer::fenced_buffer(gpu::device& dev, std::string name, std::int64_t size_bytes)
    : device_(&dev),
      name_(std::move(name)),
      size_bytes_(size_bytes),
      buffer_(dev, size_bytes + 2 * canary_bytes) {
  dev.fill(buffer_.get(), canary_byte, canary_bytes);
  dev.fill(get() + size_bytes, canary_byte, canary_bytes);
  poison();
}

void fenced_buffer::poison() {
  if (size_bytes_ > 0) device_->fill(get(), poison_byte, size_bytes_);
}

void fenced_buffer::clear() {
  if (size_bytes_ > 0) device_->fill(get(), std::byte{0}, size_bytes_);
}

std::string fenced_buffer::broken_canary() const {
  std::vector<std::byte> guard(canary_bytes);
  for (const std::int64_t at : {-canary_bytes, size_bytes_}) {
    device_->copy_to_host(guard, get() + at);
    const auto bad =
        std::find_if(guard.begin(), guard.end(), [](std::byte b) { return b != canary_byte; });
    if (bad != guard.end()) {
      return fmt::format("{}: canary overwritten at byte {} of a buffer of {} bytes", name_,
                         at + (bad - guard.begin()), size_bytes_);
    }
  }
  return "";
}

}  // namespace kvproof::verify
