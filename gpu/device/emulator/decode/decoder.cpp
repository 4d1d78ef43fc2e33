#include "gpu/device/emulator/decode/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "gpu/device/emulator/decode/control_flow.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu::emulator {
namespace {

const std::unordered_map<std::string_view, type> type_names = {
    {"pred", type::pred},     {"b8", type::b8},   {"b16", type::b16},     {"b32", type::b32},
    {"b64", type::b64},       {"u8", type::u8},   {"u16", type::u16},     {"u32", type::u32},
    {"u64", type::u64},       {"s8", type::s8},   {"s16", type::s16},     {"s32", type::s32},
    {"s64", type::s64},       {"f16", type::f16}, {"f16x2", type::f16x2}, {"bf16", type::bf16},
    {"bf16x2", type::bf16x2}, {"f32", type::f32}, {"f64", type::f64}};

const std::unordered_map<std::string_view, special> special_names = {
    {"%tid.x", special::tid_x},
    {"%tid.y", special::tid_y},
    {"%tid.z", special::tid_z},
    {"%ntid.x", special::ntid_x},
    {"%ntid.y", special::ntid_y},
    {"%ntid.z", special::ntid_z},
    {"%ctaid.x", special::ctaid_x},
    {"%ctaid.y", special::ctaid_y},
    {"%ctaid.z", special::ctaid_z},
    {"%nctaid.x", special::nctaid_x},
    {"%nctaid.y", special::nctaid_y},
    {"%nctaid.z", special::nctaid_z},
    {"%laneid", special::laneid},
    {"%warpid", special::warpid},
    {"%nwarpid", special::nwarpid},
    {"%smid", special::smid},
    {"%nsmid", special::nsmid},
    {"%gridid", special::gridid},
    {"%lanemask_eq", special::lanemask_eq},
    {"%lanemask_le", special::lanemask_le},
    {"%lanemask_lt", special::lanemask_lt},
    {"%lanemask_ge", special::lanemask_ge},
    {"%lanemask_gt", special::lanemask_gt},
    {"%dynamic_smem_size", special::dynamic_smem_size},
    {"%total_smem_size", special::total_smem_size},
    {"WARP_SZ", special::warp_size},
    {"%cluster_ctarank", special::cluster_ctarank},
    {"%cluster_nctarank", special::one}};

}  // namespace

decoder::decoder(const module_source& module, const entry_source& entry)
    : body_(parse_body(module, entry)), out_(std::make_unique<program>()) {
  out_->module = module.name;
  out_->entry = entry.name;
  out_->files = module.files;
  out_->max_threads = entry.max_threads;
  for (const variable& p : entry.params)
    out_->param_bytes = std::max(out_->param_bytes, p.address + p.size_bytes);
  place_variables();
  for (const register_decl& r : body_.registers) {
    if (r.bits == 1) {
      rows_.push_back(out_->num_predicates++);
    } else {
      rows_.push_back(new_row(r.bits == 64));
      ++out_->num_registers;
    }
  }
}

std::unique_ptr<program> decoder::finish() {
  for (const instruction_source& s : body_.instructions) decode_one(s);
  resolve_branches();
  find_reconvergence(out_->code);
  return std::move(out_);
}

void decoder::place_variables() {
  std::int64_t shared = 0;
  std::int64_t local = 0;
  const auto place = [](std::int64_t& at, variable& v, std::int64_t base) {
    at = (at + v.align - 1) / v.align * v.align;
    v.address = base + at;
    at += v.size_bytes;
  };
  for (variable& v : body_.variables) {
    if (v.space == state_space::shared && v.size_bytes != 0) place(shared, v, shared_base);
    if (v.space == state_space::local) place(local, v, local_base);
  }
  out_->static_shared_bytes = shared;
  out_->local_bytes = local;
  for (variable& v : body_.variables) {  // dynamic shared memory follows the static part
    if (v.space == state_space::shared && v.size_bytes == 0)
      v.address = (shared_base + shared + v.align - 1) / v.align * v.align;
  }
  out_->variables = body_.variables;
}

std::uint32_t decoder::new_row(bool wide) {
  const std::uint32_t at = out_->register_bytes;
  out_->register_bytes += wide ? 256 : 128;
  return at;
}

void decoder::fail(const std::string& what) const {
  throw spec::device_error(
      fmt::format("PTX module {}, line {}: {} in '{}' (kernel {}); rewrite the kernel without it "
                  "or teach the emulator",
                  out_->module, source_ != nullptr ? source_->line : 0, what,
                  source_ != nullptr ? source_->opcode : std::string_view(), out_->entry));
}

const operand& decoder::arg(std::size_t k) const {
  if (k >= source_->operands.size()) fail("too few operands");
  return source_->operands[k];
}

std::size_t decoder::num_args() const { return source_->operands.size(); }

bool decoder::is_predicate(const operand& o) const {
  return o.kind == operand_kind::reg &&
         body_.registers[static_cast<std::size_t>(o.index)].bits == 1;
}

bool decoder::is_wide(const operand& o) const {
  return o.kind == operand_kind::reg &&
         body_.registers[static_cast<std::size_t>(o.index)].bits == 64;
}

std::uint32_t decoder::constant(std::uint64_t bits, bool wide) {
  if (!wide) bits &= 0xffffffffu;
  const auto [at, fresh] = constants_.try_emplace({bits, wide}, 0);
  if (fresh) {
    at->second = new_row(wide);
    out_->constants.push_back({at->second, wide, bits});
  }
  return at->second;
}

std::uint32_t decoder::special_register(std::string_view name, bool wide) {
  const auto s = special_names.find(name);
  if (s == special_names.end()) fail(fmt::format("unknown register or label '{}'", name));
  const auto [at, fresh] = specials_.try_emplace({s->second, wide}, 0);
  if (fresh) {
    at->second = new_row(wide);
    out_->specials.push_back({at->second, wide, s->second});
  }
  return at->second;
}

std::uint64_t decoder::literal(const operand& o, type t) const {
  if (o.literal == 'i') return o.bits;
  if (o.literal == 'd' && t == type::f32)
    return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(o.bits)));
  return o.bits;
}

std::uint32_t decoder::source(const operand& o, type t) {
  const bool wide = bits_of(t) == 64;
  switch (o.kind) {
    case operand_kind::reg:
      if (is_predicate(o) || is_wide(o) != wide)
        fail(fmt::format("register {} has the wrong size", o.text));
      return rows_[static_cast<std::size_t>(o.index)];
    case operand_kind::immediate:
      return constant(literal(o, t), wide);
    case operand_kind::symbol:
      return constant(static_cast<std::uint64_t>(
                          body_.variables[static_cast<std::size_t>(o.index)].address + o.offset),
                      wide);
    case operand_kind::special:
    case operand_kind::label:
      return special_register(o.text, wide);
    default:
      fail("an operand of this kind is not possible here");
  }
}

std::uint32_t decoder::destination(const operand& o, type t) {
  if (o.kind == operand_kind::sink) return new_row(bits_of(t) == 64);
  if (o.kind != operand_kind::reg) fail("the destination must be a register");
  return source(o, t);
}

std::uint32_t decoder::predicate(const operand& o) {
  if (o.kind == operand_kind::sink) return no_row;
  if (!is_predicate(o)) fail("expected a predicate register");
  return rows_[static_cast<std::size_t>(o.index)];
}

std::int64_t decoder::immediate(const operand& o) const {
  if (o.kind != operand_kind::immediate || o.literal != 'i') fail("expected an integer constant");
  return static_cast<std::int64_t>(o.bits);
}

std::uint32_t decoder::address(const operand& o, std::int64_t& offset, bool& wide) {
  if (!o.address) fail("expected an address in brackets");
  wide = true;
  if (o.kind == operand_kind::symbol) {
    offset = o.offset + body_.variables[static_cast<std::size_t>(o.index)].address;
    return constant(0, true);
  }
  if (o.kind == operand_kind::immediate) {
    offset = static_cast<std::int64_t>(o.bits) + o.offset;
    return constant(0, true);
  }
  if (o.kind != operand_kind::reg || is_predicate(o)) fail("unknown address");
  offset = o.offset;
  wide = is_wide(o);
  return rows_[static_cast<std::size_t>(o.index)];
}

std::uint32_t decoder::plain_address(const operand& o, bool& wide) {
  std::int64_t offset = 0;
  const std::uint32_t at = address(o, offset, wide);
  if (offset == 0) return at;
  if (o.kind == operand_kind::reg) {  // base + offset in a row of its own
    instruction add;
    add.op = opcode::add;
    add.t = wide ? type::u64 : type::u32;
    add.line = source_->line;
    add.guard = guard_;
    add.guard_negated = source_->guard_negated;
    add.o.fill(no_row);
    add.o[0] = new_row(wide);
    add.o[1] = at;
    add.o[2] = constant(static_cast<std::uint64_t>(offset), wide);
    push(add);
    return add.o[0];
  }
  return constant(static_cast<std::uint64_t>(offset), true);
}

void decoder::push(const instruction& i) {
  out_->code.push_back(i);
  instruction& back = out_->code.back();
  back.run = select_handler(back);
  if (back.run == nullptr) fail("unknown combination of operation and type");
  out_->text.emplace_back(source_->opcode);
  out_->places.push_back(source_->place);
}

void decoder::decode_one(const instruction_source& s) {
  source_ = &s;
  while (positions_.size() <= static_cast<std::size_t>(&s - body_.instructions.data()))
    positions_.push_back(static_cast<std::int32_t>(out_->code.size()));
  i_ = instruction{};
  i_.o.fill(no_row);
  i_.line = s.line;
  guard_ = s.guard < 0 ? -1 : static_cast<std::int32_t>(rows_[static_cast<std::size_t>(s.guard)]);
  if (s.guard >= 0 && body_.registers[static_cast<std::size_t>(s.guard)].bits != 1)
    fail("the guard is no predicate");
  i_.guard = guard_;
  i_.guard_negated = s.guard_negated;
  modifiers m(s.opcode);
  m_ = &m;
  static const method_table table = [] {
    method_table t;
    add_arithmetic(t);
    add_memory(t);
    add_warp_wide(t);
    add_async(t);
    add_control(t);
    return t;
  }();
  const auto found = table.find(m.name());
  if (found == table.end()) fail(fmt::format("unknown instruction '{}'", m.name()));
  i_.op = found->second.op;
  (this->*found->second.run)();
  if (!m.left().empty()) fail(fmt::format("unknown modifier '.{}'", m.left()));
  push(i_);
  if (i_.op == opcode::branch) branches_.push_back(out_->code.size() - 1);
}

void decoder::expect_args(std::size_t n) const {
  if (num_args() != n) fail(fmt::format("expected {} operands", n));
}

bool decoder::is_float(type t) {
  return t == type::f16 || t == type::f16x2 || t == type::bf16 || t == type::bf16x2 ||
         t == type::f32 || t == type::f64;
}

type decoder::take_type() {
  const auto t = m_->take_from(type_names);
  if (!t) fail("missing type");
  return *t;
}

void decoder::resolve_branches() {
  positions_.resize(body_.instructions.size() + 1, static_cast<std::int32_t>(out_->code.size()));
  for (const std::size_t b : branches_)
    out_->code[b].target = positions_[static_cast<std::size_t>(out_->code[b].immediate)];
}

int bits_of(type t) {
  switch (t) {
    case type::pred:
      return 1;
    case type::b8:
    case type::u8:
    case type::s8:
      return 8;
    case type::b16:
    case type::u16:
    case type::s16:
    case type::f16:
    case type::bf16:
      return 16;
    case type::b64:
    case type::u64:
    case type::s64:
    case type::f64:
      return 64;
    case type::none:
      return 0;
    default:
      return 32;
  }
}

std::unique_ptr<program> decode(const module_source& module, const entry_source& entry) {
  return decoder(module, entry).finish();
}

}  // namespace kvproof::gpu::emulator
