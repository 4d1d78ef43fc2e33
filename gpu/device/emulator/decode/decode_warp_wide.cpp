// Decoding of instructions in which lanes exchange data, tensor cores included.
#include <fmt/format.h>

#include "gpu/device/emulator/decode/decoder.hpp"

namespace kvproof::gpu::emulator {

void decoder::shuffle() {
  const int mode = m_->take_one({"idx", "up", "down", "bfly"});
  if (!m_->take("sync") || mode < 0) fail("only shfl.sync with a mode is known");
  i_.mode = static_cast<std::uint8_t>(mode);
  i_.t = take_type();
  expect_args(5);
  i_.o[0] = destination(arg(0), type::b32);
  i_.o[1] = arg(0).parts.empty() ? no_row : predicate(arg(0).parts[0]);
  for (std::size_t k = 1; k < 5; ++k) i_.o[1 + k] = source(arg(k), type::b32);
}

void decoder::vote() {
  const int mode = m_->take_one({"all", "any", "uni", "ballot"});
  if (!m_->take("sync") || mode < 0) fail("only vote.sync is known");
  i_.mode = static_cast<std::uint8_t>(mode);
  i_.t = take_type();
  expect_args(3);
  i_.o[0] = mode == 3 ? destination(arg(0), type::b32) : predicate(arg(0));
  i_.o[1] = predicate(arg(1));
  i_.sat = arg(1).negated;
  i_.o[2] = source(arg(2), type::b32);
}

void decoder::match() {
  const int mode = m_->take_one({"any", "all"});
  if (!m_->take("sync") || mode < 0) fail("only match.sync is known");
  i_.mode = static_cast<std::uint8_t>(mode);
  i_.t = take_type();
  i_.wide_data = bits_of(i_.t) == 64;
  expect_args(3);
  i_.o[0] = destination(arg(0), type::b32);
  i_.o[3] = arg(0).parts.empty() ? no_row : predicate(arg(0).parts[0]);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), type::b32);
}

void decoder::active_mask() {
  i_.t = take_type();
  expect_args(1);
  i_.o[0] = destination(arg(0), type::b32);
}

void decoder::reduce() {
  const int mode = m_->take_one({"add", "min", "max", "and", "or", "xor"});
  if (!m_->take("sync") || mode < 0) fail("only redux.sync on integers is known");
  i_.mode = static_cast<std::uint8_t>(mode);
  i_.t = take_type();
  if (is_float(i_.t)) fail("only redux.sync on integers is known");
  expect_args(3);
  i_.o[0] = destination(arg(0), type::b32);
  i_.o[1] = source(arg(1), type::b32);
  i_.o[2] = source(arg(2), type::b32);
}

void decoder::elect() {
  if (!m_->take("sync")) fail("only elect.sync is known");
  expect_args(2);
  i_.o[0] = arg(0).kind == operand_kind::sink ? no_row : destination(arg(0), type::b32);
  if (arg(0).parts.empty()) fail("missing predicate");
  i_.o[1] = predicate(arg(0).parts[0]);
  i_.o[2] = source(arg(1), type::b32);
}

void decoder::fragment(std::size_t k, std::size_t n, std::size_t at) {
  const operand& v = arg(k);
  if (v.kind != operand_kind::vector) {
    if (n != 1) fail("expected a vector of registers");
    i_.o[at] = source(v, type::b32);
    return;
  }
  if (v.parts.size() != n) fail(fmt::format("expected {} registers", n));
  for (std::size_t e = 0; e < n; ++e) i_.o[at + e] = source(v.parts[e], type::b32);
}

void decoder::mma() {
  const int shape = m_->take_one({"m16n8k8", "m16n8k16", "m16n8k32"});
  if (!m_->take("sync") || !m_->take("aligned") || !m_->take("row") || !m_->take("col") ||
      shape < 0)
    fail("only mma.sync.aligned.m16n8k8, m16n8k16 and m16n8k32 .row.col are known");
  i_.vector = static_cast<std::uint8_t>(8 << shape);
  const type d = take_type();
  i_.t = take_type();
  i_.t2 = take_type();
  const type c = take_type();
  const auto is_byte = [](type t) { return t == type::u8 || t == type::s8; };
  const bool floats = d == type::f32 && c == type::f32 && i_.t2 == i_.t &&
                      (i_.t == type::f16 || i_.t == type::bf16) && i_.vector <= 16;
  const bool bytes =
      d == type::s32 && c == type::s32 && is_byte(i_.t) && is_byte(i_.t2) && i_.vector == 32;
  if (!floats && !bytes)
    fail(
        "only f16 or bf16 operands with f32 accumulators (k8, k16) and u8 or s8 operands with "
        "s32 accumulators (k32) are known");
  const std::size_t registers = i_.vector == 8 ? 2 : 4;  // of A; of B half as many
  expect_args(4);
  fragment(0, 4, 0);
  fragment(1, registers, 4);
  fragment(2, registers / 2, 8);
  fragment(3, 4, 10);
}

void decoder::move_matrix() {
  if (!m_->take("sync") || !m_->take("aligned") || !m_->take("m8n8") || !m_->take("trans") ||
      !m_->take("b16"))
    fail("unknown shape");
  expect_args(2);
  i_.o[0] = destination(arg(0), type::b32);
  i_.o[1] = source(arg(1), type::b32);
}

void decoder::matrix_access() {
  if (!m_->take("sync") || !m_->take("aligned") || !m_->take("m8n8")) fail("unknown shape");
  const int count = m_->take_one({"x1", "x2", "x4"});
  if (count < 0) fail("missing count");
  i_.vector = static_cast<std::uint8_t>(1 << count);
  i_.mode = m_->take("trans") ? 1 : 0;
  i_.space = take_space();
  if (!m_->take("b16")) fail("only .b16 is known");
  expect_args(2);
  fragment(i_.op == opcode::ldmatrix ? 0 : 1, i_.vector, 0);
  i_.o[8] = address(arg(i_.op == opcode::ldmatrix ? 1 : 0), i_.immediate, i_.wide);
}

void decoder::add_warp_wide(method_table& table) {
  using d = decoder;
  using o = opcode;
  table.insert({{"shfl", {&d::shuffle, o::shfl}},
                {"vote", {&d::vote, o::vote}},
                {"match", {&d::match, o::match}},
                {"activemask", {&d::active_mask, o::activemask}},
                {"redux", {&d::reduce, o::redux}},
                {"elect", {&d::elect, o::elect}},
                {"mma", {&d::mma, o::mma}},
                {"movmatrix", {&d::move_matrix, o::movmatrix}},
                {"ldmatrix", {&d::matrix_access, o::ldmatrix}},
                {"stmatrix", {&d::matrix_access, o::stmatrix}}});
}

}  // namespace kvproof::gpu::emulator
