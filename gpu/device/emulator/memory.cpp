#include "gpu/device/emulator/memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace kvproof::gpu::emulator {
namespace {
constexpr std::uint64_t alignment = 256;
constexpr std::uint64_t red_zone_bytes = 4096;
}  // namespace

std::uint64_t global_memory::allocate(std::int64_t size_bytes, std::string name) {
  const auto size = static_cast<std::uint64_t>(size_bytes);
  const std::uint64_t begin = next_ + red_zone_bytes;
  next_ = (begin + size + alignment - 1) / alignment * alignment + red_zone_bytes;
  record r;
  r.storage = std::make_unique<std::byte[]>(size + alignment);
  auto raw = reinterpret_cast<std::uintptr_t>(r.storage.get());
  raw = (raw + alignment - 1) / alignment * alignment;
  r.what.begin = begin;
  r.what.size_bytes = size;
  r.what.host = reinterpret_cast<std::byte*>(raw);
  r.what.name = std::move(name);
  std::memset(r.what.host, 0xcd, size);
  records_.emplace(begin, std::move(r));
  return begin;
}

bool global_memory::deallocate(std::uint64_t address) noexcept {
  const auto at = records_.find(address);
  if (at == records_.end() || !at->second.what.live) return false;
  at->second.what.live = false;
  at->second.what.host = nullptr;
  at->second.storage.reset();
  return true;
}

void global_memory::set_read_only(std::uint64_t address) {
  records_.at(address).what.read_only = true;
}

const allocation* global_memory::find(std::uint64_t address, std::uint64_t bytes) const {
  auto at = records_.upper_bound(address);
  if (at == records_.begin()) return nullptr;
  const allocation& a = std::prev(at)->second.what;
  return a.live && a.holds(address, bytes) ? &a : nullptr;
}

std::string global_memory::describe(std::uint64_t address) const {
  const auto show = [&](const allocation& a) {
    const std::string what =
        fmt::format("{}allocation {}of {} bytes at 0x{:x}", a.live ? "" : "freed ",
                    a.name.empty() ? std::string() : a.name + " ", a.size_bytes, a.begin);
    if (address < a.begin) return fmt::format("{} bytes before the {}", a.begin - address, what);
    const std::uint64_t end = a.begin + a.size_bytes;
    if (address >= end) return fmt::format("{} bytes past the end of the {}", address - end, what);
    return fmt::format("at byte {} of the {}", address - a.begin, what);
  };
  auto above = records_.upper_bound(address);
  const allocation* best = above == records_.end() ? nullptr : &above->second.what;
  if (above != records_.begin()) {
    const allocation& below = std::prev(above)->second.what;
    const std::uint64_t end = below.begin + below.size_bytes;
    if (best == nullptr || address < end || address - end < best->begin - address) best = &below;
  }
  return best == nullptr ? "no allocation exists" : show(*best);
}

}  // namespace kvproof::gpu::emulator
