// State of one warp and of its CTA while a kernel runs, and the helpers that instruction handlers
// share. Lanes are 0..31; a mask has bit l set when lane l takes part.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/device/emulator/decode/program.hpp"
#include "gpu/device/emulator/memory.hpp"

namespace kvproof::gpu::emulator {

struct cta;

// What a handler throws; cta.cpp adds kernel, line, CTA and warp.
struct fault {
  std::string what;
  int lane = -1;
  std::string advice;
};

// One level of the SIMT stack: `mask` runs from `pc` until `reconverge`.
struct stack_entry {
  std::int32_t pc;
  std::int32_t reconverge;
  std::uint32_t mask;
};

// A non-bulk asynchronous copy that its lane has not waited for.
struct pending_copy {
  int lane;
  std::uint32_t group;
  std::byte* destination;
  const std::byte* source;
  std::uint32_t bytes;
  std::uint32_t source_bytes;
};

struct warp {
  cta* owner = nullptr;
  std::byte* registers = nullptr;
  std::uint32_t* predicates = nullptr;
  int id = 0;
  std::uint32_t live = 0;  // lanes that exist and have not exited
  std::uint32_t carry = 0;
  std::vector<stack_entry> stack;
  std::vector<pending_copy> copies;
  std::uint32_t committed[32] = {};
  std::vector<std::byte> local;
  int waiting_barrier = -1;
  std::uint64_t failed_waits = 0;  // mbarrier waits that failed since something last changed
  std::uint64_t seen_version = 0;  // cta::version when a wait last failed
  std::int64_t instructions = 0;
  std::int64_t mmas = 0;
};

struct mbarrier {
  std::int64_t expected = 0;
  std::int64_t pending = 0;
  std::int64_t transactions = 0;
  std::uint64_t phase = 0;
};

struct bulk_copy {
  std::uint64_t barrier;  // shared address
  std::byte* destination;
  const std::byte* source;
  std::uint32_t bytes;
};

struct barrier_state {
  int arrived_threads = 0;
  int expected_threads = 0;
  int line = 0;
};

struct launch_context {
  const program* code = nullptr;
  const global_memory* memory = nullptr;
  std::span<const std::byte> params;
  launch_shape shape;
  std::int64_t shared_bytes = 0;  // static and dynamic
};

struct cta {
  const launch_context* launch = nullptr;
  std::uint32_t index[3] = {};
  std::uint64_t linear = 0;
  std::vector<std::byte> shared;
  std::vector<warp> warps;
  std::vector<std::pair<std::uint64_t, mbarrier>> mbarriers;  // by shared address
  std::vector<bulk_copy> bulk;
  barrier_state barriers[16];
  std::uint64_t version = 0;  // counts everything that a waiting warp may wait for
  const allocation* last_hit = nullptr;

  [[nodiscard]] mbarrier* find_mbarrier(std::uint64_t address) {
    for (auto& [at, b] : mbarriers)
      if (at == address) return &b;
    return nullptr;
  }
};

template <class T>
[[nodiscard]] inline T* row(warp& w, std::uint32_t offset) {
  return reinterpret_cast<T*>(w.registers + offset);
}

// d[l] = f(l) for the lanes of `mask`. A row may be both source and destination: lanes do not mix.
template <class T, class F>
[[gnu::always_inline]] inline void for_lanes(T* d, std::uint32_t mask, F f) {
  if (mask == 0xffffffffu) {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) d[l] = f(l);
    return;
  }
  for (; mask != 0; mask &= mask - 1) {
    const int l = std::countr_zero(mask);
    d[l] = f(l);
  }
}

// Address of the lane's access, [row + immediate].
[[nodiscard]] inline std::uint64_t address_of(warp& w, const instruction& i, std::uint32_t o,
                                              int lane, bool wide) {
  const std::uint64_t base = wide ? row<std::uint64_t>(w, o)[lane] : row<std::uint32_t>(w, o)[lane];
  return base + static_cast<std::uint64_t>(i.immediate);
}

enum class access : std::uint8_t { read, write };
// Checked host address of `bytes` at `address` of a state space; throws fault.
[[nodiscard]] std::byte* resolve(warp& w, state_space space, std::uint64_t address,
                                 std::uint32_t bytes, std::uint32_t alignment, access kind,
                                 int lane);

// Lanes of a .sync instruction: `member` must be lanes that execute it together.
void check_members(const warp& w, std::uint32_t member, std::uint32_t active);

void complete_mbarrier(cta& c, mbarrier& b);
void finish_copies(warp& w, int lane, std::uint32_t up_to_group);

// Selectors of handlers; null when they do not know the instruction.
[[nodiscard]] handler select_memory(const instruction& i);
[[nodiscard]] handler select_warp_wide(const instruction& i);
[[nodiscard]] handler select_async(const instruction& i);
[[nodiscard]] handler select_arithmetic_baseline(const instruction& i);
[[nodiscard]] handler select_arithmetic_avx2(const instruction& i);
[[nodiscard]] handler select_tensor_baseline(const instruction& i);
[[nodiscard]] handler select_tensor_avx2(const instruction& i);

}  // namespace kvproof::gpu::emulator
