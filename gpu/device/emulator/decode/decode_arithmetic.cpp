// Decoding of lane-wise instructions.
#include <fmt/format.h>

#include "gpu/device/emulator/decode/decoder.hpp"

namespace kvproof::gpu::emulator {
namespace {

const std::unordered_map<std::string_view, comparison> comparison_names = {
    {"eq", comparison::eq},   {"ne", comparison::ne},   {"lt", comparison::lt},
    {"le", comparison::le},   {"gt", comparison::gt},   {"ge", comparison::ge},
    {"lo", comparison::lt},   {"ls", comparison::le},   {"hi", comparison::gt},
    {"hs", comparison::ge},   {"equ", comparison::equ}, {"neu", comparison::neu},
    {"ltu", comparison::ltu}, {"leu", comparison::leu}, {"gtu", comparison::gtu},
    {"geu", comparison::geu}, {"num", comparison::num}, {"nan", comparison::nan}};

const std::unordered_map<std::string_view, rounding> rounding_names = {
    {"rn", rounding::rn},   {"rz", rounding::rz},   {"rm", rounding::rm},   {"rp", rounding::rp},
    {"rni", rounding::rni}, {"rzi", rounding::rzi}, {"rmi", rounding::rmi}, {"rpi", rounding::rpi}};

opcode predicate_form(opcode op) {
  switch (op) {
    case opcode::band:
      return opcode::pred_and;
    case opcode::bor:
      return opcode::pred_or;
    case opcode::bxor:
      return opcode::pred_xor;
    default:
      return opcode::pred_not;
  }
}

}  // namespace

void decoder::float_modifiers() {
  i_.ftz = m_->take("ftz");
  i_.sat = m_->take("sat") || m_->take("satfinite");
  i_.nan = m_->take("NaN");
  if (m_->take("relu")) i_.mode = 1;
  if (const auto r = m_->take_from(rounding_names)) {
    if (*r > rounding::rp) fail("rounding to an integer is of cvt alone");
    if (*r != rounding::rn && i_.t != type::f32 && i_.t != type::f64)
      fail("16-bit arithmetic rounds to nearest alone");
    i_.round = *r;
  }
  if (m_->take("approx") || m_->take("full")) fail("approximate arithmetic has no exact model");
}

void decoder::arithmetic() {
  i_.t = take_type();
  if (is_float(i_.t)) {
    float_modifiers();
  } else {
    i_.sat = m_->take("sat");
    if (i_.op == opcode::add && m_->take("cc")) i_.op = opcode::add_cc, i_.mode = 1;
    if (i_.op == opcode::sub && m_->take("cc")) i_.op = opcode::sub_cc, i_.mode = 1;
    if ((i_.op == opcode::addc || i_.op == opcode::subc) && m_->take("cc")) i_.mode = 1;
  }
  if (num_args() > 4) fail("too many operands");
  i_.o[0] = destination(arg(0), i_.t);
  for (std::size_t k = 1; k < num_args(); ++k) i_.o[k] = source(arg(k), i_.t);
}

type decoder::widened(type t) {
  switch (t) {
    case type::u16:
      return type::u32;
    case type::s16:
      return type::s32;
    case type::u32:
      return type::u64;
    default:
      return type::s64;
  }
}

void decoder::multiply() {
  i_.t = take_type();
  if (is_float(i_.t)) {
    float_modifiers();
  } else {
    const int part = m_->take_one({"lo", "hi", "wide"});
    if (part < 0) fail("missing .lo, .hi or .wide");
    i_.op = part == 0 ? opcode::mul_lo : part == 1 ? opcode::mul_hi : opcode::mul_wide;
  }
  expect_args(3);
  i_.o[0] = destination(arg(0), i_.op == opcode::mul_wide ? widened(i_.t) : i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), i_.t);
}

void decoder::multiply_add() {
  i_.t = take_type();
  if (is_float(i_.t)) {
    float_modifiers();
    if (i_.round == rounding::none) fail("missing .rn, .rz, .rm or .rp");
  } else {
    const int part = m_->take_one({"lo", "hi", "wide"});
    const bool carry_out = m_->take("cc");
    const bool carry_in = m_->name() == "madc";
    if (part < 0 || (part == 2 && (carry_in || carry_out))) fail("missing .lo, .hi or .wide");
    i_.op = part == 0 ? opcode::mad_lo : part == 1 ? opcode::mad_hi : opcode::mad_wide;
    if (carry_in || carry_out) {
      i_.op = carry_in ? opcode::madc_lo : opcode::mad_lo_cc;
      i_.vector = part == 1 ? 2 : 1;
      i_.mode = carry_out ? 1 : 0;
    }
  }
  expect_args(4);
  const type wide = i_.op == opcode::mad_wide ? widened(i_.t) : i_.t;
  i_.o[0] = destination(arg(0), wide);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), i_.t);
  i_.o[3] = source(arg(3), wide);
}

void decoder::rounded() {
  arithmetic();
  if (is_float(i_.t) && i_.round == rounding::none) fail("missing .rn, .rz, .rm or .rp");
}

void decoder::exp2() {
  i_.t = take_type();
  i_.ftz = m_->take("ftz");
  if (!m_->take("approx") || !i_.ftz || i_.t != type::f32)
    fail("only ex2.approx.ftz.f32 has an exact model");
  expect_args(2);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
}

void decoder::logic() {
  i_.t = take_type();
  if (i_.t != type::pred) {
    i_.o[0] = destination(arg(0), i_.t);
    for (std::size_t k = 1; k < num_args(); ++k) i_.o[k] = source(arg(k), i_.t);
    return;
  }
  i_.op = predicate_form(i_.op);
  i_.vector = 0;
  i_.o[0] = predicate(arg(0));
  for (std::size_t k = 1; k < num_args(); ++k) {
    if (arg(k).kind == operand_kind::immediate) fail("a constant predicate is not possible here");
    i_.o[k] = predicate(arg(k));
    if (arg(k).negated) i_.vector = static_cast<std::uint8_t>(i_.vector | 1u << k);
  }
}

void decoder::shift() {
  i_.t = take_type();
  expect_args(3);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), type::u32);
}

void decoder::bit_count() {
  i_.t = take_type();
  i_.mode = i_.op == opcode::bfind && m_->take("shiftamt") ? 1 : 0;
  expect_args(2);
  i_.o[0] = destination(arg(0), type::u32);
  i_.o[1] = source(arg(1), i_.t);
}

void decoder::extract() {
  i_.t = take_type();
  expect_args(4);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), type::u32);
  i_.o[3] = source(arg(3), type::u32);
}

void decoder::insert() {
  i_.t = take_type();
  expect_args(5);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), i_.t);
  i_.o[3] = source(arg(3), type::u32);
  i_.o[4] = source(arg(4), type::u32);
}

void decoder::three_words() {
  i_.t = take_type();
  i_.o[0] = destination(arg(0), type::u32);
  for (std::size_t k = 1; k < 4; ++k) i_.o[k] = source(arg(k), type::u32);
}

void decoder::permute() {
  const int mode = m_->take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  three_words();
  expect_args(4);
  i_.mode = static_cast<std::uint8_t>(mode + 1);
}

void decoder::lookup() {
  three_words();
  expect_args(5);
  i_.immediate = immediate(arg(4)) & 0xff;
}

void decoder::funnel() {
  const bool left = m_->take_one({"r", "l"}) == 1;
  const int mode = m_->take_one({"clamp", "wrap"});
  if (mode < 0) fail("missing .clamp or .wrap");
  i_.op = left ? opcode::shf_l : opcode::shf_r;
  three_words();
  expect_args(4);
  i_.mode = static_cast<std::uint8_t>(mode);
}

void decoder::dot_product() {
  const type a = take_type();
  three_words();
  i_.t2 = i_.t;
  i_.t = a;
  expect_args(4);
}

void decoder::compare() {
  comparison_modifiers();
  i_.t2 = take_type();
  i_.t = i_.t2;
  i_.o[0] = predicate(arg(0));
  i_.o[1] = arg(0).parts.empty() ? no_row : predicate(arg(0).parts[0]);
  comparison_operands();
}

void decoder::set() {
  comparison_modifiers();
  i_.t = take_type();
  i_.t2 = take_type();
  if (bits_of(i_.t) != 32) fail("unknown destination type");
  i_.o[0] = destination(arg(0), i_.t);
  comparison_operands();
}

void decoder::comparison_modifiers() {
  const auto c = m_->take_from(comparison_names);
  if (!c) fail("missing comparison");
  i_.compare = *c;
  i_.ftz = m_->take("ftz");
  i_.mode = static_cast<std::uint8_t>(m_->take_one({"and", "or", "xor"}) + 1);
}

void decoder::comparison_operands() {
  i_.o[2] = source(arg(1), i_.t2);
  i_.o[3] = source(arg(2), i_.t2);
  expect_args(i_.mode != 0 ? 4 : 3);
  if (i_.mode != 0) {
    i_.o[4] = predicate(arg(3));
    i_.sat = arg(3).negated;  // combine with the negated predicate
  }
}

void decoder::select() {
  i_.t = take_type();
  expect_args(4);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), i_.t);
  i_.o[3] = predicate(arg(3));
  i_.sat = arg(3).negated;
}

void decoder::select_sign() {
  m_->take("ftz");
  i_.t = take_type();
  i_.t2 = take_type();
  expect_args(4);
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
  i_.o[2] = source(arg(2), i_.t);
  i_.o[3] = source(arg(3), type::u32);
}

void decoder::move() {
  i_.t = take_type();
  expect_args(2);
  if (i_.t == type::pred) {
    i_.op = opcode::pred_mov;
    i_.vector = arg(1).negated ? 2 : 0;
    i_.o[0] = predicate(arg(0));
    if (arg(1).kind == operand_kind::immediate) {
      i_.immediate = immediate(arg(1));
    } else {
      i_.o[1] = predicate(arg(1));
    }
    return;
  }
  if (arg(1).kind == operand_kind::vector) return pack(opcode::pack, arg(0), arg(1));
  if (arg(0).kind == operand_kind::vector) return pack(opcode::unpack, arg(1), arg(0));
  const std::string_view name = arg(1).text;
  if (arg(1).kind == operand_kind::special &&
      (name == "%clock" || name == "%clock64" || name == "%globaltimer" || name == "%clock_hi" ||
       name == "%globaltimer_lo")) {
    i_.op = opcode::clock;
    i_.wide = bits_of(i_.t) == 64;
    i_.o[0] = destination(arg(0), i_.t);
    return;
  }
  i_.o[0] = destination(arg(0), i_.t);
  i_.o[1] = source(arg(1), i_.t);
}

void decoder::pack(opcode op, const operand& whole, const operand& parts) {
  const auto n = parts.parts.size();
  const int bits = bits_of(i_.t) / static_cast<int>(n);
  if ((n != 2 && n != 4) || bits < 8) fail("unknown shape of a packed move");
  i_.op = op;
  i_.wide = bits_of(i_.t) == 64;
  i_.mode = static_cast<std::uint8_t>(bits);
  i_.vector = static_cast<std::uint8_t>(n);
  i_.o[0] = op == opcode::pack ? destination(whole, i_.t) : source(whole, i_.t);
  for (std::size_t k = 0; k < n; ++k)
    if (parts.parts[k].kind != operand_kind::sink) i_.o[1 + k] = source(parts.parts[k], type::b32);
}

void decoder::convert() {
  i_.ftz = m_->take("ftz");
  i_.sat = m_->take("sat");
  const bool satfinite = m_->take("satfinite");
  i_.mode = m_->take("relu") ? 1 : 0;
  if (const auto r = m_->take_from(rounding_names)) i_.round = *r;
  i_.t = take_type();
  i_.t2 = take_type();
  if (satfinite) fail("unknown modifier '.satfinite'");
  if (i_.t == type::f16x2 || i_.t == type::bf16x2) {
    expect_args(3);
    if (i_.t2 != type::f32 || i_.round == rounding::none) fail("unknown packed conversion");
    i_.op = opcode::cvt_pack;
    i_.o[0] = destination(arg(0), type::b32);
    i_.o[1] = source(arg(1), type::f32);
    i_.o[2] = source(arg(2), type::f32);
    return;
  }
  expect_args(2);
  i_.wide_data = is_wide(arg(0));
  i_.o[0] = destination(arg(0), i_.wide_data ? type::b64 : type::b32);
  const type from =
      arg(1).kind == operand_kind::reg ? (is_wide(arg(1)) ? type::b64 : type::b32) : i_.t2;
  i_.wide = bits_of(from) == 64;
  i_.o[1] = source(arg(1), from);
  if (bits_of(i_.t2) == 64 && !i_.wide) fail("the source register is too narrow");
  if (bits_of(i_.t) == 64 && !i_.wide_data) fail("the destination register is too narrow");
}

void decoder::test_property() {
  const int what =
      m_->take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  if (what < 0) fail("missing property");
  i_.mode = static_cast<std::uint8_t>(what);
  i_.t = take_type();
  expect_args(2);
  i_.o[0] = predicate(arg(0));
  i_.o[1] = source(arg(1), i_.t);
}

void decoder::add_arithmetic(method_table& table) {
  using d = decoder;
  using o = opcode;
  table.insert({{"add", {&d::arithmetic, o::add}},
                {"sub", {&d::arithmetic, o::sub}},
                {"addc", {&d::arithmetic, o::addc}},
                {"subc", {&d::arithmetic, o::subc}},
                {"min", {&d::arithmetic, o::min}},
                {"max", {&d::arithmetic, o::max}},
                {"abs", {&d::arithmetic, o::abs}},
                {"neg", {&d::arithmetic, o::neg}},
                {"rem", {&d::arithmetic, o::rem}},
                {"brev", {&d::arithmetic, o::brev}},
                {"copysign", {&d::arithmetic, o::copysign}},
                {"mul", {&d::multiply, o::mul_lo}},
                {"mad", {&d::multiply_add, o::mad_lo}},
                {"madc", {&d::multiply_add, o::madc_lo}},
                {"fma", {&d::multiply_add, o::fma}},
                {"div", {&d::rounded, o::div}},
                {"sqrt", {&d::rounded, o::sqrt}},
                {"rcp", {&d::rounded, o::rcp}},
                {"ex2", {&d::exp2, o::ex2}},
                {"and", {&d::logic, o::band}},
                {"or", {&d::logic, o::bor}},
                {"xor", {&d::logic, o::bxor}},
                {"not", {&d::logic, o::bnot}},
                {"shl", {&d::shift, o::shl}},
                {"shr", {&d::shift, o::shr}},
                {"popc", {&d::bit_count, o::popc}},
                {"clz", {&d::bit_count, o::clz}},
                {"bfind", {&d::bit_count, o::bfind}},
                {"bfe", {&d::extract, o::bfe}},
                {"bfi", {&d::insert, o::bfi}},
                {"prmt", {&d::permute, o::prmt}},
                {"lop3", {&d::lookup, o::lop3}},
                {"shf", {&d::funnel, o::shf_l}},
                {"dp4a", {&d::dot_product, o::dp4a}},
                {"setp", {&d::compare, o::setp}},
                {"set", {&d::set, o::set}},
                {"selp", {&d::select, o::selp}},
                {"slct", {&d::select_sign, o::slct}},
                {"mov", {&d::move, o::mov}},
                {"cvt", {&d::convert, o::cvt}},
                {"testp", {&d::test_property, o::testp}}});
}

}  // namespace kvproof::gpu::emulator
