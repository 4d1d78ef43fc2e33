// Loads, stores, atomics and address conversions, all checked.
#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

const char* verb(access kind) { return kind == access::read ? "read" : "write"; }

std::string nearest_shared(const cta& c, u64 address) {
  const variable* best = nullptr;
  for (const variable& v : c.launch->code->variables)
    if (v.space == state_space::shared && static_cast<u64>(v.address) <= address &&
        (best == nullptr || v.address >= best->address))
      best = &v;
  return best == nullptr ? std::string("no shared variable lies below")
                         : fmt::format("nearest variable below: {} at 0x{:x}, {} bytes", best->name,
                                       best->address, best->size_bytes);
}

}  // namespace

std::byte* resolve(warp& w, state_space space, u64 address, u32 bytes, u32 alignment, access kind,
                   int lane) {
  cta& c = *w.owner;
  if (space == state_space::generic) {
    if (address >= local_window) {
      space = state_space::local;
      address -= local_window;
    } else if (address >= shared_window) {
      space = state_space::shared;
      address -= shared_window;
    } else {
      space = state_space::global;
    }
  }
  if (address % alignment != 0)
    throw fault{
        fmt::format("misaligned {} of {} bytes at address 0x{:x}", verb(kind), bytes, address),
        lane, fmt::format("align it to {} bytes", alignment)};
  if (space == state_space::shared) {
    address &= 0xffffffffu;
    if (address < shared_base || address - shared_base + bytes > c.shared.size())
      throw fault{fmt::format("out-of-bounds {} of {} bytes of shared memory at address 0x{:x}; "
                              "the CTA has {} bytes from 0x{:x}; {}",
                              verb(kind), bytes, address, c.shared.size(), shared_base,
                              nearest_shared(c, address)),
                  lane, "check the index and the shared memory size of the launch"};
    return c.shared.data() + (address - shared_base);
  }
  if (space == state_space::local) {
    const auto size = static_cast<u64>(c.launch->code->local_bytes);
    if (address < local_base || address - local_base + bytes > size)
      throw fault{fmt::format("out-of-bounds {} of {} bytes of local memory at address 0x{:x}; a "
                              "thread has {} bytes from 0x{:x}",
                              verb(kind), bytes, address, size, local_base),
                  lane, "check the index of the local array"};
    return w.local.data() + static_cast<u64>(lane) * size + (address - local_base);
  }
  if (space == state_space::param) {
    if (address + bytes > c.launch->params.size() || address + bytes < address)
      throw fault{
          fmt::format("out-of-bounds read of {} bytes at byte {} of the {} bytes of parameters",
                      bytes, address, c.launch->params.size()),
          lane, "pass the whole parameter struct"};
    return const_cast<std::byte*>(c.launch->params.data()) + address;
  }
  if (c.last_hit == nullptr || !c.last_hit->holds(address, bytes)) {
    const allocation* a = c.launch->memory->find(address, bytes);
    if (a == nullptr)
      throw fault{fmt::format("out-of-bounds {} of {} bytes of global memory at address 0x{:x}, {}",
                              verb(kind), bytes, address, c.launch->memory->describe(address)),
                  lane, "check the pointer and the index"};
    c.last_hit = a;
  }
  if (kind == access::write && c.last_hit->read_only)
    throw fault{fmt::format("write to constant memory at address 0x{:x}", address), lane,
                "constant variables are read-only"};
  return c.last_hit->host + (address - c.last_hit->begin);
}

namespace {

// Bytes that lie in one piece on the host: accesses inside need no search.
struct piece {
  u64 begin = 0;
  u64 size_bytes = 0;
  std::byte* host = nullptr;
};
piece piece_of(const warp& w, state_space space, access kind) {
  cta& c = *w.owner;
  switch (space) {
    case state_space::shared:
      return {shared_base, c.shared.size(), c.shared.data()};
    case state_space::local:
    case state_space::param:
      return {};
    default:  // generic addresses of other spaces are far from every allocation
      if (c.last_hit == nullptr || (kind == access::write && c.last_hit->read_only)) return {};
      return {c.last_hit->begin, c.last_hit->size_bytes, c.last_hit->host};
  }
}

// f(lane, host address) for the lanes of m, each access checked.
template <u32 Bytes, class F>
[[gnu::always_inline]] inline void for_accesses(warp& w, const instruction& i, u32 m, access kind,
                                                F f) {
  piece p = piece_of(w, i.space, kind);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 address = address_of(w, i, i.o[4], l, i.wide);
    const u64 at = address - p.begin;
    if (at < p.size_bytes && Bytes <= p.size_bytes - at && address % Bytes == 0) [[likely]] {
      f(l, p.host + at);
    } else {
      f(l, resolve(w, i.space, address, Bytes, Bytes, kind, l));
      p = piece_of(w, i.space, kind);
    }
  }
}

// T is the element in memory, whose sign a load extends; Slot that of its row.
template <class T, class Slot, u32 Vector>
step load(warp& w, const instruction& i, u32 m) {
  Slot* to[Vector];
  Slot unused[32];
  for (u32 k = 0; k < Vector; ++k) to[k] = i.o[k] == no_row ? unused : row<Slot>(w, i.o[k]);
  for_accesses<sizeof(T) * Vector>(w, i, m, access::read, [&](int l, const std::byte* from) {
    T words[Vector];
    std::memcpy(words, from, sizeof words);
    for (u32 k = 0; k < Vector; ++k) to[k][l] = static_cast<Slot>(words[k]);
  });
  return step::next;
}
template <class T, class Slot, u32 Vector>
step store(warp& w, const instruction& i, u32 m) {
  const Slot* from[Vector];
  for (u32 k = 0; k < Vector; ++k) from[k] = row<Slot>(w, i.o[k]);
  for_accesses<sizeof(T) * Vector>(w, i, m, access::write, [&](int l, std::byte* to) {
    T words[Vector];
    for (u32 k = 0; k < Vector; ++k) words[k] = static_cast<T>(from[k][l]);
    std::memcpy(to, words, sizeof words);
  });
  ++w.owner->version;
  return step::next;
}

template <class T, class Slot>
handler access_of(const instruction& i) {
  const bool loads = i.op == opcode::load;
  switch (i.vector) {
    case 1:
      return loads ? load<T, Slot, 1> : store<T, Slot, 1>;
    case 2:
      return loads ? load<T, Slot, 2> : store<T, Slot, 2>;
    default:
      return loads ? load<T, Slot, 4> : store<T, Slot, 4>;
  }
}
template <class T>
handler access_of(const instruction& i) {
  return i.wide_data ? access_of<T, u64>(i) : access_of<T, u32>(i);
}
handler select_access(const instruction& i) {
  switch (i.t) {
    case type::s8:
      return access_of<std::int8_t>(i);
    case type::s16:
      return access_of<std::int16_t>(i);
    case type::s32:
      return access_of<std::int32_t>(i);
    default:
      break;
  }
  switch (bits_of(i.t)) {
    case 8:
      return access_of<std::uint8_t>(i);
    case 16:
      return access_of<std::uint16_t>(i);
    case 32:
      return access_of<u32>(i);
    case 64:
      return access_of<u64>(i);
    default:
      return nullptr;
  }
}

u64 window_of(state_space s) {
  return s == state_space::shared ? shared_window : s == state_space::local ? local_window : 0;
}
step convert_address(warp& w, const instruction& i, u32 m) {
  const u64 window = window_of(i.space);
  const u64 delta = i.op == opcode::to_generic ? window : ~window + 1;
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    if (i.wide) {
      row<u64>(w, i.o[0])[l] = row<u64>(w, i.o[1])[l] + delta;
    } else {
      row<u32>(w, i.o[0])[l] = static_cast<u32>(row<u32>(w, i.o[1])[l] + delta);
    }
  }
  return step::next;
}
step is_space(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 a = row<u64>(w, i.o[1])[l];
    const state_space s = a >= local_window    ? state_space::local
                          : a >= shared_window ? state_space::shared
                                               : state_space::global;
    w.predicates[i.o[0]] = (w.predicates[i.o[0]] & ~(1u << l)) | (s == i.space ? 1u << l : 0u);
  }
  return step::next;
}

// Order of decode: add min max and or xor exch cas inc dec.
template <class T>
T updated(const instruction& i, T old, T b, T c) {
  using S = std::make_signed_t<T>;
  const bool is_signed = i.t == type::s32 || i.t == type::s64;
  const bool less = is_signed ? static_cast<S>(old) < static_cast<S>(b) : old < b;
  switch (i.mode) {
    case 0:
      return static_cast<T>(old + b);
    case 1:
      return less ? old : b;
    case 2:
      return less ? b : old;
    case 3:
      return old & b;
    case 4:
      return old | b;
    case 5:
      return old ^ b;
    case 6:
      return b;
    case 7:
      return old == b ? c : old;
    case 8:
      return old >= b ? T{0} : static_cast<T>(old + 1);
    default:
      return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
}
template <class T>
step atomic(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    auto* at = reinterpret_cast<T*>(resolve(w, i.space, address_of(w, i, i.o[4], l, i.wide),
                                            sizeof(T), sizeof(T), access::write, l));
    const T b = row<T>(w, i.o[1])[l];
    const T c = i.o[2] == no_row ? T{0} : row<T>(w, i.o[2])[l];
    T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &old, updated<T>(i, old, b, c), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    if (i.o[0] != no_row) row<T>(w, i.o[0])[l] = old;
  }
  ++w.owner->version;
  return step::next;
}

step nothing(warp&, const instruction&, u32) { return step::next; }

}  // namespace

handler select_memory(const instruction& i) {
  switch (i.op) {
    case opcode::load:
    case opcode::store:
      return select_access(i);
    case opcode::to_generic:
    case opcode::from_generic:
      return convert_address;
    case opcode::is_space:
      return is_space;
    case opcode::atomic:
      return bits_of(i.t) == 64 ? atomic<u64> : bits_of(i.t) == 32 ? atomic<u32> : nullptr;
    case opcode::nop:
      return nothing;
    default:
      return nullptr;
  }
}

}  // namespace kvproof::gpu::emulator
