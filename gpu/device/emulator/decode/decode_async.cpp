// Decoding of asynchronous copies and mbarriers.
#include <fmt/format.h>

#include "gpu/device/emulator/decode/decoder.hpp"

namespace kvproof::gpu::emulator {

void decoder::copy_async() {
  if (m_->take("bulk")) return bulk();
  if (!m_->take("async")) fail("unknown copy");
  if (m_->take("commit_group")) {
    i_.op = opcode::cp_async_commit;
    return expect_args(0);
  }
  if (m_->take("wait_all") || m_->take("wait_group")) {
    i_.op = opcode::cp_async_wait;
    i_.immediate = num_args() == 0 ? 0 : immediate(arg(0));
    i_.mode = num_args() == 0 ? 1 : 0;
    return;
  }
  if (m_->take("mbarrier")) {
    if (!m_->take("arrive")) fail("unknown copy");
    i_.op = opcode::cp_async_mbarrier;
    i_.mode = m_->take("noinc") ? 1 : 0;
    take_space();
    m_->take("b64");
    i_.o[4] = address(arg(0), i_.immediate, i_.wide);
    return;
  }
  if (m_->take_one({"ca", "cg"}) < 0) fail("missing .ca or .cg");
  take_hints();
  const bool hint = m_->take("L2::cache_hint");
  m_->take("shared::cta");
  m_->take("shared");
  if (!m_->take("global")) fail("only global to shared copies are known");
  i_.vector = static_cast<std::uint8_t>(immediate(arg(2)));
  if (i_.vector != 4 && i_.vector != 8 && i_.vector != 16) fail("the size must be 4, 8 or 16");
  const bool has_size = num_args() == (hint ? 5u : 4u);
  if (!has_size && num_args() != (hint ? 4u : 3u)) fail("unknown operands");
  i_.o[0] = plain_address(arg(0), i_.wide_data);
  i_.o[1] = plain_address(arg(1), i_.wide);
  if (has_size)
    i_.o[2] =
        is_predicate(arg(3)) ? (fail("ignore-src is unknown"), no_row) : source(arg(3), type::u32);
}

void decoder::bulk() {
  if (!m_->take("async")) fail("unknown copy");
  if (m_->take("commit_group")) {
    i_.op = opcode::bulk_commit;
    return;
  }
  if (m_->take("wait_group")) {
    m_->take("read");
    i_.op = opcode::bulk_wait;
    return;
  }
  const bool hint = m_->take("L2::cache_hint");
  if (m_->take("bulk_group")) {
    i_.op = opcode::bulk_store;
    if (take_space() != state_space::global || take_space() != state_space::shared)
      fail("unknown spaces");
    expect_args(hint ? 4 : 3);
  } else {
    i_.op = opcode::bulk_load;
    if (!m_->take("mbarrier::complete_tx::bytes")) fail("unknown completion");
    if (m_->take_one({"shared::cluster", "shared::cta"}) < 0 || !m_->take("global"))
      fail("unknown spaces");
    expect_args(hint ? 5 : 4);
    bool wide = false;
    i_.o[3] = plain_address(arg(3), wide);
    i_.mode = wide ? 1 : 0;
  }
  i_.o[0] = plain_address(arg(0), i_.wide_data);
  i_.o[1] = plain_address(arg(1), i_.wide);
  i_.o[2] = source(arg(2), type::u32);
}

void decoder::mbarrier() {
  const int what = m_->take_one({"init", "inval", "arrive", "expect_tx", "test_wait", "try_wait"});
  const bool expects = what == 2 && m_->take("expect_tx");
  const bool parity = m_->take("parity");
  if (take_space() != state_space::shared)
    fail("an mbarrier lies in shared memory; missing .shared");
  take_hints();
  m_->take("b64");
  std::size_t at = 0;
  i_.mode = 0;
  switch (what) {
    case 0:
      i_.op = opcode::mbarrier_init;
      expect_args(2);
      i_.o[1] = source(arg(1), type::u32);
      break;
    case 1:
      i_.op = opcode::mbarrier_inval;
      break;
    case 2:
      i_.op = opcode::mbarrier_arrive;
      at = num_args() > 1 && !arg(0).address ? 1 : 0;
      if (at == 1 && arg(0).kind != operand_kind::sink) i_.o[0] = destination(arg(0), type::b64);
      i_.mode = expects ? 1 : 0;
      if (num_args() > at + 1) i_.o[1] = source(arg(at + 1), type::u32);
      if (expects && i_.o[1] == no_row) fail("missing byte count");
      break;
    case 3:
      i_.op = opcode::mbarrier_expect;
      m_->take("relaxed");
      i_.o[1] = source(arg(1), type::u32);
      break;
    case 4:
    case 5:
      i_.op = opcode::mbarrier_wait;
      at = 1;
      i_.mode = static_cast<std::uint8_t>((parity ? 1 : 0) | (what == 5 ? 2 : 0));
      i_.o[0] = predicate(arg(0));
      i_.o[1] = source(arg(2), parity ? type::u32 : type::b64);
      break;
    default:
      fail("unknown mbarrier operation");
  }
  i_.o[4] = address(arg(at), i_.immediate, i_.wide);
}

void decoder::add_async(method_table& table) {
  using d = decoder;
  using o = opcode;
  table.insert(
      {{"cp", {&d::copy_async, o::cp_async}}, {"mbarrier", {&d::mbarrier, o::mbarrier_init}}});
}

}  // namespace kvproof::gpu::emulator
