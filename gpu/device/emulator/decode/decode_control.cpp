// Decoding of branches and barriers.
#include <fmt/format.h>

#include "gpu/device/emulator/decode/decoder.hpp"

namespace kvproof::gpu::emulator {

void decoder::barrier() {
  m_->take("cta");
  const bool is_warp = m_->take("warp");
  if (is_warp) {
    if (!m_->take("sync")) fail("unknown barrier");
    i_.op = opcode::bar_warp;
    i_.o[0] = source(arg(0), type::b32);
    return;
  }
  m_->take("aligned");
  const int what = m_->take_one({"sync", "arrive"});
  if (what < 0) fail("only bar.sync and bar.arrive are known");
  i_.op = what == 0 ? opcode::barrier : opcode::bar_arrive;
  i_.control = true;
  i_.o[0] = source(arg(0), type::u32);
  if (num_args() > 1) i_.o[1] = source(arg(1), type::u32);
  if (what == 1 && num_args() < 2) fail("missing thread count");
}

void decoder::branch() {
  m_->take("uni");
  i_.control = true;
  expect_args(1);
  if (arg(0).kind != operand_kind::label) fail("unknown target");
  const std::size_t at = body_.find_label(arg(0).text, source_->scope);
  if (at == std::string_view::npos) fail(fmt::format("unknown label '{}'", arg(0).text));
  i_.immediate = static_cast<std::int64_t>(at);
}

void decoder::leave() {
  m_->take("uni");
  i_.control = true;
}

void decoder::trap() {}

void decoder::add_control(method_table& table) {
  using d = decoder;
  using o = opcode;
  table.insert({{"bar", {&d::barrier, o::barrier}},
                {"barrier", {&d::barrier, o::barrier}},
                {"bra", {&d::branch, o::branch}},
                {"ret", {&d::leave, o::exit}},
                {"exit", {&d::leave, o::exit}},
                {"trap", {&d::trap, o::trap}}});
}

}  // namespace kvproof::gpu::emulator
