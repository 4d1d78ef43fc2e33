// Decoding of loads, stores, atomics and address conversions.
#include <fmt/format.h>

#include "gpu/device/emulator/decode/decoder.hpp"

namespace kvproof::gpu::emulator {

void decoder::take_hints() {
  for (const std::string_view hint : {"volatile",
                                      "relaxed",
                                      "acquire",
                                      "release",
                                      "acq_rel",
                                      "weak",
                                      "nc",
                                      "ca",
                                      "cg",
                                      "cs",
                                      "lu",
                                      "cv",
                                      "wb",
                                      "wt",
                                      "cta",
                                      "cluster",
                                      "gpu",
                                      "sys",
                                      "L1::evict_normal",
                                      "L1::evict_unchanged",
                                      "L1::evict_first",
                                      "L1::evict_last",
                                      "L1::no_allocate",
                                      "L2::evict_first",
                                      "L2::evict_last",
                                      "L2::evict_normal",
                                      "L2::64B",
                                      "L2::128B",
                                      "L2::256B",
                                      "unified",
                                      "sc",
                                      "mmio"})
    m_->take(hint);
}

state_space decoder::take_space() {
  switch (m_->take_one({"global", "shared", "shared::cta", "shared::cluster", "local", "const",
                        "param", "param::entry"})) {
    case 0:
      return state_space::global;
    case 1:
    case 2:
    case 3:
      return state_space::shared;
    case 4:
      return state_space::local;
    case 5:
      return state_space::constant;
    case 6:
    case 7:
      return state_space::param;
    default:
      return state_space::generic;
  }
}

void decoder::load_store() {
  i_.space = take_space();
  take_hints();
  const bool hint = m_->take("L2::cache_hint");
  i_.vector = m_->take("v2") ? 2 : m_->take("v4") ? 4 : 1;
  i_.t = take_type();
  const operand& data = arg(i_.op == opcode::load ? 0 : 1);
  const operand& where = arg(i_.op == opcode::load ? 1 : 0);
  expect_args(hint ? 3 : 2);
  if (i_.op == opcode::store &&
      (i_.space == state_space::param || i_.space == state_space::constant))
    fail("this space is read-only");
  if (i_.vector * bits_of(i_.t) > 128) fail("an access of more than 16 bytes");
  i_.o[4] = address(where, i_.immediate, i_.wide);
  const std::size_t n = data.kind == operand_kind::vector ? data.parts.size() : 1;
  if (n != i_.vector) fail("the number of registers does not match the vector length");
  for (std::size_t k = 0; k < n; ++k) {
    const operand& d = data.kind == operand_kind::vector ? data.parts[k] : data;
    if (d.kind == operand_kind::sink) continue;
    const bool wide = d.kind == operand_kind::reg ? is_wide(d) : bits_of(i_.t) == 64;
    if (bits_of(i_.t) == 64 && !wide) fail("the register is too narrow");
    i_.wide_data = wide;
    const type t = d.kind == operand_kind::reg ? (wide ? type::b64 : type::b32) : i_.t;
    i_.o[k] = i_.op == opcode::load ? destination(d, t) : source(d, t);
  }
}

void decoder::to_address() {
  const bool to = m_->take("to");
  i_.space = take_space();
  i_.t = take_type();
  if (to) i_.op = opcode::from_generic;
  expect_args(2);
  i_.wide = bits_of(i_.t) == 64;
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
}

void decoder::which_space() {
  i_.space = take_space();
  expect_args(2);
  i_.o[0] = predicate(arg(0));
  i_.wide = true;
  i_.o[1] = source(arg(1), type::b64);
}

void decoder::atomic() {
  i_.space = take_space();
  take_hints();
  const bool hint = m_->take("L2::cache_hint");
  const int what =
      m_->take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  if (what < 0) fail("missing operation");
  i_.mode = static_cast<std::uint8_t>(what);
  i_.t = take_type();
  if (is_float(i_.t)) fail("an atomic on floating-point numbers has no defined order");
  const bool returns = m_->name() == "atom";
  const std::size_t first = returns ? 1 : 0;
  expect_args(first + (what == 7 ? 3 : 2) + (hint ? 1 : 0));
  i_.wide_data = bits_of(i_.t) == 64;
  if (returns) i_.o[0] = destination(arg(0), i_.t);
  i_.o[4] = address(arg(first), i_.immediate, i_.wide);
  i_.o[1] = source(arg(first + 1), i_.t);
  if (what == 7) i_.o[2] = source(arg(first + 2), i_.t);
}

void decoder::ignored() {
  while (!m_->left().empty()) m_->take(m_->left());
}

void decoder::cache_policy() {
  ignored();
  i_.t = type::b64;
  i_.o[0] = destination(arg(0), type::b64);
  i_.o[1] = constant(0, true);
}

void decoder::add_memory(method_table& table) {
  using d = decoder;
  using o = opcode;
  table.insert({{"ld", {&d::load_store, o::load}},
                {"ldu", {&d::load_store, o::load}},
                {"st", {&d::load_store, o::store}},
                {"cvta", {&d::to_address, o::to_generic}},
                {"isspacep", {&d::which_space, o::is_space}},
                {"atom", {&d::atomic, o::atomic}},
                {"red", {&d::atomic, o::atomic}},
                {"membar", {&d::ignored, o::nop}},
                {"fence", {&d::ignored, o::nop}},
                {"prefetch", {&d::ignored, o::nop}},
                {"prefetchu", {&d::ignored, o::nop}},
                {"applypriority", {&d::ignored, o::nop}},
                {"discard", {&d::ignored, o::nop}},
                {"nanosleep", {&d::ignored, o::nop}},
                {"griddepcontrol", {&d::ignored, o::nop}},
                {"setmaxnreg", {&d::ignored, o::nop}},
                {"createpolicy", {&d::cache_policy, o::mov}}});
}

}  // namespace kvproof::gpu::emulator
