// Asynchronous copies and mbarriers. Data arrive as late as the program allows: at the wait. Until
// then the destination is poisoned, so that a kernel that reads too early gets garbage every time.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

void complete_mbarrier(cta& c, mbarrier& b) {
  ++c.version;
  if (b.pending != 0 || b.transactions != 0) return;
  ++b.phase;
  b.pending = b.expected;
}

void finish_copies(warp& w, int lane, u32 up_to_group) {
  std::erase_if(w.copies, [&](const pending_copy& p) {
    if (p.lane != lane || p.group >= up_to_group) return false;
    std::memset(p.destination, 0, p.bytes);
    std::memcpy(p.destination, p.source, p.source_bytes);
    return true;
  });
}

namespace {

constexpr unsigned char poison = 0xcd;

u64 plain(warp& w, u32 o, bool wide, int l) { return wide ? row<u64>(w, o)[l] : row<u32>(w, o)[l]; }

mbarrier& barrier_at(warp& w, u64 address, int lane) {
  static_cast<void>(resolve(w, state_space::shared, address, 8, 8, access::read, lane));
  mbarrier* b = w.owner->find_mbarrier(address & 0xffffffffu);
  if (b == nullptr)
    throw fault{fmt::format("no mbarrier is initialised at shared address 0x{:x}", address), lane,
                "run mbarrier.init and synchronise before its first use"};
  return *b;
}

// The lane's pending copies to this barrier arrive.
void deliver(cta& c, u64 address) {
  mbarrier* b = c.find_mbarrier(address);
  std::erase_if(c.bulk, [&](const bulk_copy& p) {
    if (p.barrier != address) return false;
    std::memcpy(p.destination, p.source, p.bytes);
    b->transactions -= p.bytes;
    complete_mbarrier(c, *b);
    return true;
  });
}

step copy_async(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u32 bytes = i.vector;
    u32 source_bytes = bytes;
    if (i.o[2] != no_row) source_bytes = row<u32>(w, i.o[2])[l];
    if (source_bytes > bytes)
      throw fault{fmt::format("cp.async with a source size of {} and a copy size of {} bytes",
                              source_bytes, bytes),
                  l, "the source size is at most the copy size"};
    std::byte* to = resolve(w, state_space::shared, plain(w, i.o[0], i.wide_data, l), bytes, bytes,
                            access::write, l);
    const std::byte* from = source_bytes == 0
                                ? to
                                : resolve(w, state_space::global, plain(w, i.o[1], i.wide, l),
                                          source_bytes, bytes, access::read, l);
    std::memset(to, poison, bytes);
    w.copies.push_back({l, w.committed[l], to, from, bytes, source_bytes});
  }
  return step::next;
}
step commit(warp& w, const instruction&, u32 m) {
  for (; m != 0; m &= m - 1) ++w.committed[std::countr_zero(m)];
  return step::next;
}
// wait_group n: all but the newest n committed groups; wait_all (mode 1): everything.
step wait(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    if (i.mode == 1) {
      finish_copies(w, l, 0xffffffffu);
      ++w.committed[l];
      continue;
    }
    const auto keep = static_cast<u32>(i.immediate);
    if (w.committed[l] > keep) finish_copies(w, l, w.committed[l] - keep);
  }
  ++w.owner->version;
  return step::next;
}

void arrive(cta& c, mbarrier& b, std::int64_t count, int lane) {
  if (count < 1 || count > b.pending)
    throw fault{fmt::format("{} arrivals on an mbarrier that expects {} more in this phase", count,
                            b.pending),
                lane, "check the count given to mbarrier.init"};
  b.pending -= count;
  complete_mbarrier(c, b);
}

step copies_arrive(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    mbarrier& b = barrier_at(w, address_of(w, i, i.o[4], l, i.wide), l);
    finish_copies(w, l, 0xffffffffu);
    if (i.mode == 0) ++b.pending;
    arrive(*w.owner, b, 1, l);
  }
  return step::next;
}

step init(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 address = address_of(w, i, i.o[4], l, i.wide) & 0xffffffffu;
    static_cast<void>(resolve(w, state_space::shared, address, 8, 8, access::write, l));
    const auto count = static_cast<std::int64_t>(row<u32>(w, i.o[1])[l]);
    if (count < 1 || count >= 1 << 20)
      throw fault{fmt::format("mbarrier.init with the count {}", count), l, "use 1 to 1048575"};
    cta& c = *w.owner;
    mbarrier* b = c.find_mbarrier(address);
    if (b == nullptr) {
      c.mbarriers.emplace_back(address, mbarrier{});
      b = &c.mbarriers.back().second;
    }
    *b = {count, count, 0, 0};
    ++c.version;
  }
  return step::next;
}
step invalidate(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 address = address_of(w, i, i.o[4], l, i.wide);
    static_cast<void>(barrier_at(w, address, l));
    std::erase_if(w.owner->mbarriers,
                  [&](const auto& entry) { return entry.first == (address & 0xffffffffu); });
  }
  return step::next;
}
// mode 1: expect_tx first, with o[1] bytes; else o[1] is the count.
step arrive_on(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    mbarrier& b = barrier_at(w, address_of(w, i, i.o[4], l, i.wide), l);
    const u64 phase = b.phase;
    const u32 value = i.o[1] == no_row ? 1 : row<u32>(w, i.o[1])[l];
    if (i.mode == 1) b.transactions += value;
    arrive(*w.owner, b, i.mode == 1 ? 1 : value, l);
    if (i.o[0] != no_row) row<u64>(w, i.o[0])[l] = phase;
  }
  return step::next;
}
step expect(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    barrier_at(w, address_of(w, i, i.o[4], l, i.wide), l).transactions += row<u32>(w, i.o[1])[l];
  }
  ++w.owner->version;
  return step::next;
}
// mode bit 0: by parity. A failed wait lets the other warps run.
step wait_on(warp& w, const instruction& i, u32 m) {
  cta& c = *w.owner;
  bool failed = false;
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 address = address_of(w, i, i.o[4], l, i.wide) & 0xffffffffu;
    static_cast<void>(barrier_at(w, address, l));
    deliver(c, address);
    const mbarrier& b = barrier_at(w, address, l);
    const bool done = (i.mode & 1) != 0 ? (b.phase & 1) != (row<u32>(w, i.o[1])[l] & 1)
                                        : b.phase != row<u64>(w, i.o[1])[l];
    failed = failed || !done;
    w.predicates[i.o[0]] = (w.predicates[i.o[0]] & ~(1u << l)) | (done ? 1u << l : 0u);
  }
  if (!failed) {
    w.failed_waits = 0;
    return step::next;
  }
  w.failed_waits = w.seen_version == c.version ? w.failed_waits + 1 : 1;
  w.seen_version = c.version;
  return step::yield;
}

void check_bulk(u64 a, u64 b, u32 bytes, int lane) {
  if (a % 16 != 0 || b % 16 != 0 || bytes % 16 != 0 || bytes == 0)
    throw fault{
        fmt::format("cp.async.bulk of {} bytes between addresses 0x{:x} and 0x{:x}", bytes, a, b),
        lane, "addresses and size must be multiples of 16 bytes, the size not 0"};
}
step bulk_load(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 to = plain(w, i.o[0], i.wide_data, l);
    const u64 from = plain(w, i.o[1], i.wide, l);
    const u32 bytes = row<u32>(w, i.o[2])[l];
    const u64 barrier = plain(w, i.o[3], i.mode == 1, l) & 0xffffffffu;
    check_bulk(to, from, bytes, l);
    static_cast<void>(barrier_at(w, barrier, l));
    std::byte* destination = resolve(w, state_space::shared, to, bytes, 16, access::write, l);
    const std::byte* source = resolve(w, state_space::global, from, bytes, 16, access::read, l);
    std::memset(destination, poison, bytes);
    w.owner->bulk.push_back({barrier, destination, source, bytes});
  }
  ++w.owner->version;
  return step::next;
}
step bulk_store(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 to = plain(w, i.o[0], i.wide_data, l);
    const u64 from = plain(w, i.o[1], i.wide, l);
    const u32 bytes = row<u32>(w, i.o[2])[l];
    check_bulk(to, from, bytes, l);
    const std::byte* source = resolve(w, state_space::shared, from, bytes, 16, access::read, l);
    std::memcpy(resolve(w, state_space::global, to, bytes, 16, access::write, l), source, bytes);
  }
  ++w.owner->version;
  return step::next;
}
// Bulk stores are done when issued.
step bulk_done(warp&, const instruction&, u32) { return step::next; }

}  // namespace

handler select_async(const instruction& i) {
  switch (i.op) {
    case opcode::cp_async:
      return copy_async;
    case opcode::cp_async_commit:
      return commit;
    case opcode::cp_async_wait:
      return wait;
    case opcode::cp_async_mbarrier:
      return copies_arrive;
    case opcode::mbarrier_init:
      return init;
    case opcode::mbarrier_inval:
      return invalidate;
    case opcode::mbarrier_arrive:
      return arrive_on;
    case opcode::mbarrier_expect:
      return expect;
    case opcode::mbarrier_wait:
      return wait_on;
    case opcode::bulk_load:
      return bulk_load;
    case opcode::bulk_store:
      return bulk_store;
    case opcode::bulk_commit:
    case opcode::bulk_wait:
      return bulk_done;
    default:
      return nullptr;
  }
}

}  // namespace kvproof::gpu::emulator
