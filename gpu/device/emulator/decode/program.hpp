// Decoded form of one entry. A register is a row of 32 lanes in the register file of a warp: 128
// bytes for up to 32 bits, 256 bytes for 64 bits; an operand is the byte offset of its row.
// Predicates are 32-bit lane masks in a file of their own. Constants and special registers are rows
// too, filled when a warp starts, so that an instruction never asks what kind its operands are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device/emulator/ptx/ptx_parser.hpp"

namespace kvproof::gpu::emulator {

struct warp;
struct instruction;

enum class type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64
};
[[nodiscard]] int bits_of(type t);

enum class rounding : std::uint8_t { none, rn, rz, rm, rp, rni, rzi, rmi, rpi };

// Order as in the PTX comparison suffixes; the u-forms are true for NaN operands.
enum class comparison : std::uint8_t {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan,
  none
};

enum class opcode : std::uint8_t {
  // lane-wise, destination and sources in rows
  add,
  sub,
  mul_lo,
  mul_hi,
  mul_wide,
  mad_lo,
  mad_hi,
  mad_wide,
  min,
  max,
  abs,
  neg,
  div,
  rem,
  band,
  bor,
  bxor,
  bnot,
  shl,
  shr,
  bfe,
  bfi,
  brev,
  popc,
  clz,
  bfind,
  prmt,
  lop3,
  shf_l,
  shf_r,
  dp4a,
  add_cc,
  addc,
  sub_cc,
  subc,
  mad_lo_cc,
  madc_lo,
  madc_hi,
  fma,
  sqrt,
  rcp,
  ex2,
  mov,
  selp,
  slct,
  set,
  setp,
  cvt,
  cvt_pack,
  pack,
  unpack,
  pred_and,
  pred_or,
  pred_xor,
  pred_not,
  pred_mov,
  copysign,
  testp,
  // memory
  load,
  store,
  load_param,
  to_generic,
  from_generic,
  is_space,
  atomic,
  nop,
  // warp-wide
  shfl,
  vote,
  match,
  activemask,
  redux,
  elect,
  mma,
  movmatrix,
  ldmatrix,
  stmatrix,
  clock,
  // asynchronous
  cp_async,
  cp_async_commit,
  cp_async_wait,
  cp_async_mbarrier,
  mbarrier_init,
  mbarrier_inval,
  mbarrier_arrive,
  mbarrier_expect,
  mbarrier_wait,
  bulk_load,
  bulk_store,
  bulk_commit,
  bulk_wait,
  // control
  barrier,
  bar_arrive,
  bar_warp,
  branch,
  exit,
  trap
};

enum class step : std::uint8_t { next, yield, barrier, jump, exit };
using handler = step (*)(warp&, const instruction&, std::uint32_t mask);

struct instruction {
  handler run = nullptr;
  opcode op{};
  type t{};
  type t2{};
  rounding round{};
  comparison compare{};
  state_space space{};
  std::uint8_t mode = 0;    // variant of the operation, see decode
  std::uint8_t vector = 1;  // elements of a vector access, ldmatrix count
  bool ftz = false;
  bool sat = false;
  bool nan = false;   // min/max.NaN
  bool wide = false;  // 64-bit address row, or 64-bit destination rows of a load
  bool wide_data = false;
  bool guard_negated = false;
  bool control = false;     // runs even when the guard selects no lane
  std::int32_t guard = -1;  // predicate index
  std::int32_t line = 0;
  std::int32_t target = -1;      // branch target
  std::int32_t reconverge = -1;  // immediate post-dominator of a branch, `size` for the exit
  std::int64_t immediate = 0;
  std::array<std::uint32_t, 16> o{};  // rows or predicate indices; no_row for absent
};
inline constexpr std::uint32_t no_row = 0xffffffffu;

enum class special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  dynamic_smem_size,
  total_smem_size,
  warp_size,
  one,
  cluster_ctarank
};

struct constant_row {
  std::uint32_t row;
  bool wide;
  std::uint64_t bits;
};
struct special_row {
  std::uint32_t row;
  bool wide;
  special what;
};

struct program {
  std::string module;
  std::string entry;
  std::vector<instruction> code;
  std::vector<std::string> text;     // one per instruction: opcode as written
  std::vector<source_place> places;  // one per instruction
  std::map<int, std::string> files;  // of the places
  std::uint32_t register_bytes = 0;
  std::uint32_t num_predicates = 0;
  std::vector<constant_row> constants;
  std::vector<special_row> specials;
  std::vector<variable> variables;  // shared and local ones with their addresses
  std::int64_t param_bytes = 0;
  std::int64_t static_shared_bytes = 0;
  std::int64_t local_bytes = 0;
  int max_threads = 0;
  int num_registers = 0;
};

// Shared addresses start here, as on sm_90, where the first KiB is the system's.
inline constexpr std::int64_t shared_base = 1024;
inline constexpr std::int64_t local_base = 16;
// Windows of the generic address space.
inline constexpr std::uint64_t shared_window = std::uint64_t{1} << 56;
inline constexpr std::uint64_t local_window = std::uint64_t{2} << 56;

// Decodes `entry`; the module's global and constant variables already have their addresses.
// Throws spec::device_error naming module and line for anything not understood.
[[nodiscard]] std::unique_ptr<program> decode(const module_source& module,
                                              const entry_source& entry);

// Handler of a decoded instruction; null when this combination of operation and types is unknown.
[[nodiscard]] handler select_handler(const instruction& i);

}  // namespace kvproof::gpu::emulator
