// Device memory: allocations at made-up addresses, each with red zones on both sides, never reused,
// so that a stale or stray address always misses. Immutable while a kernel runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace kvproof::gpu::emulator {

struct allocation {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::byte* host = nullptr;
  std::string name;  // of a module variable; empty for allocate()
  bool live = true;
  bool read_only = false;

  [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= begin && address - begin <= size_bytes &&
           bytes <= size_bytes - (address - begin);
  }
};

class global_memory {
 public:
  // Filled with 0xcd. 256-byte aligned.
  std::uint64_t allocate(std::int64_t size_bytes, std::string name = {});
  // False when `address` is not the start of a live allocation.
  bool deallocate(std::uint64_t address) noexcept;
  void set_read_only(std::uint64_t address);

  // The live allocation that holds all `bytes` at `address`, or null.
  [[nodiscard]] const allocation* find(std::uint64_t address, std::uint64_t bytes) const;
  // "16 bytes past the end of the allocation of 256 bytes at 0x..."
  [[nodiscard]] std::string describe(std::uint64_t address) const;

 private:
  struct record {
    allocation what;
    std::unique_ptr<std::byte[]> storage;
  };
  std::map<std::uint64_t, record> records_;  // by first address; freed ones stay, without storage
  std::uint64_t next_ = 0x7f0000000000;
};

}  // namespace kvproof::gpu::emulator
