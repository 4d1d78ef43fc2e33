// Instructions in which the lanes of a warp exchange data, except the MMA.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

void check_members(const warp& w, u32 member, u32 active) {
  if ((member & w.live & ~active) != 0)
    throw fault{fmt::format("the member mask 0x{:08x} of a warp-wide instruction names lanes that "
                            "are elsewhere (0x{:08x} are here)",
                            member, active),
                std::countr_zero(member & w.live & ~active),
                "all lanes of the mask must reach the same instruction"};
  if ((active & ~member) != 0)
    throw fault{
        fmt::format(
            "a lane executes a warp-wide instruction without being in its member mask 0x{:08x}",
            member),
        std::countr_zero(active & ~member), "add the lane to the mask"};
}

namespace {

// The member mask is uniform.
u32 members(const warp& w, const u32* mask, u32 active) {
  const u32 member = mask[std::countr_zero(active)];
  check_members(w, member, active);
  return member;
}

// o: d, p, a, b, c, mask
step shuffle(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[5]), m);
  u32 a[32];
  std::memcpy(a, row<u32>(w, i.o[2]), sizeof a);
  const u32* b = row<u32>(w, i.o[3]);
  const u32* c = row<u32>(w, i.o[4]);
  u32 valid = 0;
  u32 result[32] = {};
  for (u32 rest = m; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const int distance = static_cast<int>(b[lane] & 31);
    const u32 segment = c[lane] >> 8 & 31;
    const u32 clamp = c[lane] & 31;
    const int last = static_cast<int>((static_cast<u32>(lane) & segment) | (clamp & ~segment));
    const int first = static_cast<int>(static_cast<u32>(lane) & segment);
    int j = 0;
    bool in = false;
    switch (i.mode) {
      case 0:
        j = first | static_cast<int>(static_cast<u32>(distance) & ~segment);
        in = j <= last;
        break;
      case 1:
        j = lane - distance;
        in = j >= last;
        break;
      case 2:
        j = lane + distance;
        in = j <= last;
        break;
      default:
        j = lane ^ distance;
        in = j <= last;
        break;
    }
    if (!in) j = lane;
    if ((m >> j & 1) == 0)
      throw fault{fmt::format("shfl reads lane {}, which does not take part", j), lane,
                  "widen the active lanes or guard the use"};
    result[lane] = a[j];
    valid |= (in ? 1u : 0u) << lane;
  }
  for_lanes(row<u32>(w, i.o[0]), m, [&](int l) { return result[l]; });
  if (i.o[1] != no_row) w.predicates[i.o[1]] = (w.predicates[i.o[1]] & ~m) | valid;
  return step::next;
}

step vote(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[2]), m);
  const u32 p = (i.sat ? ~w.predicates[i.o[1]] : w.predicates[i.o[1]]) & m;
  if (i.mode == 3) {
    for_lanes(row<u32>(w, i.o[0]), m, [=](int) { return p; });
    return step::next;
  }
  const bool r = i.mode == 0 ? p == m : i.mode == 1 ? p != 0 : p == m || p == 0;
  w.predicates[i.o[0]] = (w.predicates[i.o[0]] & ~m) | (r ? m : 0u);
  return step::next;
}

step match(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[2]), m);
  const auto value = [&](int l) {
    return i.wide_data ? row<u64>(w, i.o[1])[l] : row<u32>(w, i.o[1])[l];
  };
  u32 same[32] = {};
  bool all = true;
  for (int l = 0; l < 32; ++l) {
    for (int k = 0; k < 32; ++k)
      if ((m >> l & 1) != 0 && (m >> k & 1) != 0 && value(l) == value(k)) same[l] |= 1u << k;
    all = all && ((m >> l & 1) == 0 || same[l] == m);
  }
  for_lanes(row<u32>(w, i.o[0]), m, [&](int l) { return i.mode == 0 ? same[l] : all ? m : 0u; });
  if (i.o[3] != no_row) w.predicates[i.o[3]] = (w.predicates[i.o[3]] & ~m) | (all ? m : 0u);
  return step::next;
}

step active_mask(warp& w, const instruction& i, u32 m) {
  for_lanes(row<u32>(w, i.o[0]), m, [=](int) { return m; });
  return step::next;
}

step reduce(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[2]), m);
  const u32* a = row<u32>(w, i.o[1]);
  const bool is_signed = i.t == type::s32;
  u32 r = a[std::countr_zero(m)];
  for (u32 rest = m & (m - 1); rest != 0; rest &= rest - 1) {
    const u32 v = a[std::countr_zero(rest)];
    const bool less =
        is_signed ? static_cast<std::int32_t>(v) < static_cast<std::int32_t>(r) : v < r;
    switch (i.mode) {
      case 0:
        r += v;
        break;
      case 1:
        r = less ? v : r;
        break;
      case 2:
        r = less ? r : v;
        break;
      case 3:
        r &= v;
        break;
      case 4:
        r |= v;
        break;
      default:
        r ^= v;
        break;
    }
  }
  for_lanes(row<u32>(w, i.o[0]), m, [=](int) { return r; });
  return step::next;
}

step elect(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[2]), m);
  const int leader = std::countr_zero(m);
  if (i.o[0] != no_row)
    for_lanes(row<u32>(w, i.o[0]), m, [=](int) { return static_cast<u32>(leader); });
  w.predicates[i.o[1]] = (w.predicates[i.o[1]] & ~m) | 1u << leader;
  return step::next;
}

void need_whole_warp(u32 m) {
  if (m != 0xffffffffu)
    throw fault{fmt::format("a warp-wide matrix instruction runs with the lanes 0x{:08x} alone", m),
                std::countr_zero(~m), "all 32 lanes must execute it together"};
}

// Lane 4r + c holds elements 2c and 2c + 1 of row r of an 8x8 matrix.
void transpose(u32* lanes) {
  std::uint16_t t[8][8];
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 8; ++c)
      t[c][r] = static_cast<std::uint16_t>(lanes[4 * r + c / 2] >> (16 * (c & 1)));
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 4; ++c) lanes[4 * r + c] = u32{t[r][2 * c]} | u32{t[r][2 * c + 1]} << 16;
}

step move_matrix(warp& w, const instruction& i, u32 m) {
  need_whole_warp(m);
  u32 t[32];
  std::memcpy(t, row<u32>(w, i.o[1]), sizeof t);
  transpose(t);
  std::memcpy(row<u32>(w, i.o[0]), t, sizeof t);
  return step::next;
}

// Lane 8k + r holds the address of row r of matrix k.
step matrix_load(warp& w, const instruction& i, u32 m) {
  need_whole_warp(m);
  u32 t[4][32];
  for (u32 k = 0; k < i.vector; ++k) {
    for (u32 r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(8 * k + r);
      std::memcpy(&t[k][4 * r],
                  resolve(w, state_space::shared, address_of(w, i, i.o[8], lane, i.wide), 16, 16,
                          access::read, lane),
                  16);
    }
    if (i.mode == 1) transpose(t[k]);
  }
  for (u32 k = 0; k < i.vector; ++k) std::memcpy(row<u32>(w, i.o[k]), t[k], sizeof t[k]);
  return step::next;
}
step matrix_store(warp& w, const instruction& i, u32 m) {
  need_whole_warp(m);
  for (u32 k = 0; k < i.vector; ++k) {
    u32 t[32];
    std::memcpy(t, row<u32>(w, i.o[k]), sizeof t);
    if (i.mode == 1) transpose(t);
    for (u32 r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(8 * k + r);
      std::memcpy(resolve(w, state_space::shared, address_of(w, i, i.o[8], lane, i.wide), 16, 16,
                          access::write, lane),
                  &t[4 * r], 16);
    }
  }
  return step::next;
}

// A clock that counts the warp's instructions: monotonic and the same in every run.
step clock(warp& w, const instruction& i, u32 m) {
  const auto now = static_cast<u64>(w.instructions);
  if (i.wide) {
    for_lanes(row<u64>(w, i.o[0]), m, [=](int) { return now; });
  } else {
    for_lanes(row<u32>(w, i.o[0]), m, [=](int) { return static_cast<u32>(now); });
  }
  return step::next;
}

step warp_barrier(warp& w, const instruction& i, u32 m) {
  members(w, row<u32>(w, i.o[0]), m);
  return step::next;
}

}  // namespace

handler select_warp_wide(const instruction& i) {
  switch (i.op) {
    case opcode::shfl:
      return shuffle;
    case opcode::vote:
      return vote;
    case opcode::match:
      return match;
    case opcode::activemask:
      return active_mask;
    case opcode::redux:
      return reduce;
    case opcode::elect:
      return elect;
    case opcode::movmatrix:
      return move_matrix;
    case opcode::ldmatrix:
      return matrix_load;
    case opcode::stmatrix:
      return matrix_store;
    case opcode::clock:
      return clock;
    case opcode::bar_warp:
      return warp_barrier;
    default:
      return nullptr;
  }
}

}  // namespace kvproof::gpu::emulator
