#include "gpu/device/emulator/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "gpu/device/emulator/control_flow.hpp"
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

// The parts of an opcode after its name; what nobody takes is unknown.
class modifiers {
 public:
  explicit modifiers(std::string_view opcode) {
    for (std::size_t at = 0; at <= opcode.size();) {
      const std::size_t dot = std::min(opcode.find('.', at), opcode.size());
      parts_.push_back(opcode.substr(at, dot - at));
      at = dot + 1;
    }
    name_ = parts_.front();
    parts_.erase(parts_.begin());
  }
  [[nodiscard]] std::string_view name() const { return name_; }
  bool take(std::string_view part) {
    const auto at = std::find(parts_.begin(), parts_.end(), part);
    if (at == parts_.end()) return false;
    parts_.erase(at);
    return true;
  }
  // Index of the first of `choices` that is present, or -1.
  int take_one(std::initializer_list<std::string_view> choices) {
    int k = 0;
    for (const std::string_view c : choices) {
      if (take(c)) return k;
      ++k;
    }
    return -1;
  }
  template <class T>
  std::optional<T> take_from(const std::unordered_map<std::string_view, T>& names) {
    for (auto p = parts_.begin(); p != parts_.end(); ++p) {
      if (const auto n = names.find(*p); n != names.end()) {
        parts_.erase(p);
        return n->second;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::string_view left() const {
    return parts_.empty() ? std::string_view() : parts_.front();
  }

 private:
  std::string_view name_;
  std::vector<std::string_view> parts_;
};

class decoder {
 public:
  decoder(const module_source& module, const entry_source& entry)
      : body_(parse_body(module, entry)), out_(std::make_unique<program>()) {
    out_->module = module.name;
    out_->entry = entry.name;
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

  std::unique_ptr<program> finish() {
    for (const instruction_source& s : body_.instructions) decode_one(s);
    resolve_branches();
    find_reconvergence(out_->code);
    return std::move(out_);
  }

 private:
  using method = void (decoder::*)();

  void place_variables() {
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

  std::uint32_t new_row(bool wide) {
    const std::uint32_t at = out_->register_bytes;
    out_->register_bytes += wide ? 256 : 128;
    return at;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw spec::device_error(
        fmt::format("PTX module {}, line {}: {} in '{}' (kernel {}); rewrite the kernel without it "
                    "or teach the emulator",
                    out_->module, source_ != nullptr ? source_->line : 0, what,
                    source_ != nullptr ? source_->opcode : std::string_view(), out_->entry));
  }

  // ---- operands ----

  const operand& arg(std::size_t k) const {
    if (k >= source_->operands.size()) fail("too few operands");
    return source_->operands[k];
  }
  std::size_t num_args() const { return source_->operands.size(); }

  bool is_predicate(const operand& o) const {
    return o.kind == operand_kind::reg &&
           body_.registers[static_cast<std::size_t>(o.index)].bits == 1;
  }
  bool is_wide(const operand& o) const {
    return o.kind == operand_kind::reg &&
           body_.registers[static_cast<std::size_t>(o.index)].bits == 64;
  }
  std::uint32_t constant(std::uint64_t bits, bool wide) {
    if (!wide) bits &= 0xffffffffu;
    const auto [at, fresh] = constants_.try_emplace({bits, wide}, 0);
    if (fresh) {
      at->second = new_row(wide);
      out_->constants.push_back({at->second, wide, bits});
    }
    return at->second;
  }
  std::uint32_t special_register(std::string_view name, bool wide) {
    const auto s = special_names.find(name);
    if (s == special_names.end()) fail(fmt::format("unknown register or label '{}'", name));
    const auto [at, fresh] = specials_.try_emplace({s->second, wide}, 0);
    if (fresh) {
      at->second = new_row(wide);
      out_->specials.push_back({at->second, wide, s->second});
    }
    return at->second;
  }
  std::uint64_t literal(const operand& o, type t) const {
    if (o.literal == 'i') return o.bits;
    if (o.literal == 'd' && t == type::f32)
      return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(o.bits)));
    return o.bits;
  }
  // Row of a source operand of type t.
  std::uint32_t source(const operand& o, type t) {
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
  std::uint32_t destination(const operand& o, type t) {
    if (o.kind == operand_kind::sink) return new_row(bits_of(t) == 64);
    if (o.kind != operand_kind::reg) fail("the destination must be a register");
    return source(o, t);
  }
  std::uint32_t predicate(const operand& o) {
    if (o.kind == operand_kind::sink) return no_row;
    if (!is_predicate(o)) fail("expected a predicate register");
    return rows_[static_cast<std::size_t>(o.index)];
  }
  std::int64_t immediate(const operand& o) const {
    if (o.kind != operand_kind::immediate || o.literal != 'i') fail("expected an integer constant");
    return static_cast<std::int64_t>(o.bits);
  }
  // Row of an address operand; the offset is returned through `offset`, its width through `wide`.
  std::uint32_t address(const operand& o, std::int64_t& offset, bool& wide) {
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
  // An address without offset, for instructions with several of them.
  std::uint32_t plain_address(const operand& o, bool& wide) {
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

  void push(const instruction& i) {
    out_->code.push_back(i);
    instruction& back = out_->code.back();
    back.run = select_handler(back);
    if (back.run == nullptr) fail("unknown combination of operation and type");
    out_->text.emplace_back(source_->opcode);
  }

  // ---- one instruction ----

  void decode_one(const instruction_source& s) {
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
    static const std::unordered_map<std::string_view, method> table = methods();
    const auto found = table.find(m.name());
    if (found == table.end()) fail(fmt::format("unknown instruction '{}'", m.name()));
    (this->*found->second)();
    if (!m.left().empty()) fail(fmt::format("unknown modifier '.{}'", m.left()));
    push(i_);
    if (i_.op == opcode::branch) branches_.push_back(out_->code.size() - 1);
  }

  static std::unordered_map<std::string_view, method> methods();

  type take_type() {
    const auto t = m_->take_from(type_names);
    if (!t) fail("missing type");
    return *t;
  }
  void float_modifiers() {
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

  template <opcode Op>
  void arithmetic() {  // d, a (, b (, c)) of one type
    i_.op = Op;
    i_.t = take_type();
    if (is_float(i_.t)) {
      float_modifiers();
    } else {
      i_.sat = m_->take("sat");
      if (Op == opcode::add && m_->take("cc")) i_.op = opcode::add_cc, i_.mode = 1;
      if (Op == opcode::sub && m_->take("cc")) i_.op = opcode::sub_cc, i_.mode = 1;
      if ((Op == opcode::addc || Op == opcode::subc) && m_->take("cc")) i_.mode = 1;
    }
    if (num_args() > 4) fail("too many operands");
    i_.o[0] = destination(arg(0), i_.t);
    for (std::size_t k = 1; k < num_args(); ++k) i_.o[k] = source(arg(k), i_.t);
  }
  void expect_args(std::size_t n) const {
    if (num_args() != n) fail(fmt::format("expected {} operands", n));
  }
  static bool is_float(type t) {
    return t == type::f16 || t == type::f16x2 || t == type::bf16 || t == type::bf16x2 ||
           t == type::f32 || t == type::f64;
  }
  static type widened(type t) {
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
  void multiply() {
    i_.t = take_type();
    if (is_float(i_.t)) {
      float_modifiers();
      i_.op = opcode::mul_lo;
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
  void multiply_add() {
    i_.t = take_type();
    if (is_float(i_.t)) {
      float_modifiers();
      if (i_.round == rounding::none) fail("missing .rn, .rz, .rm or .rp");
      i_.op = opcode::fma;
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
  template <opcode Op>
  void rounded() {  // div, sqrt, rcp: integer, or float with its rounding
    arithmetic<Op>();
    if (is_float(i_.t) && i_.round == rounding::none) fail("missing .rn, .rz, .rm or .rp");
  }
  void exp2() {
    i_.op = opcode::ex2;
    i_.t = take_type();
    i_.ftz = m_->take("ftz");
    if (!m_->take("approx") || !i_.ftz || i_.t != type::f32)
      fail("only ex2.approx.ftz.f32 has an exact model");
    expect_args(2);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
  }

  template <opcode Bits, opcode Predicates>
  void logic() {
    i_.t = take_type();
    if (i_.t != type::pred) {
      i_.op = Bits;
      i_.o[0] = destination(arg(0), i_.t);
      for (std::size_t k = 1; k < num_args(); ++k) i_.o[k] = source(arg(k), i_.t);
      return;
    }
    i_.op = Predicates;
    i_.vector = 0;
    i_.o[0] = predicate(arg(0));
    for (std::size_t k = 1; k < num_args(); ++k) {
      if (arg(k).kind == operand_kind::immediate) fail("a constant predicate is not possible here");
      i_.o[k] = predicate(arg(k));
      if (arg(k).negated) i_.vector = static_cast<std::uint8_t>(i_.vector | 1u << k);
    }
  }
  template <opcode Op>
  void shift() {
    i_.op = Op;
    i_.t = take_type();
    expect_args(3);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
    i_.o[2] = source(arg(2), type::u32);
  }
  template <opcode Op>
  void bit_count() {
    i_.op = Op;
    i_.t = take_type();
    i_.mode = Op == opcode::bfind && m_->take("shiftamt") ? 1 : 0;
    expect_args(2);
    i_.o[0] = destination(arg(0), type::u32);
    i_.o[1] = source(arg(1), i_.t);
  }
  void extract() {
    i_.op = opcode::bfe;
    i_.t = take_type();
    expect_args(4);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
    i_.o[2] = source(arg(2), type::u32);
    i_.o[3] = source(arg(3), type::u32);
  }
  void insert() {
    i_.op = opcode::bfi;
    i_.t = take_type();
    expect_args(5);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
    i_.o[2] = source(arg(2), i_.t);
    i_.o[3] = source(arg(3), type::u32);
    i_.o[4] = source(arg(4), type::u32);
  }
  void three_words(opcode op) {
    i_.op = op;
    i_.t = take_type();
    i_.o[0] = destination(arg(0), type::u32);
    for (std::size_t k = 1; k < 4; ++k) i_.o[k] = source(arg(k), type::u32);
  }
  void permute() {
    const int mode = m_->take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    three_words(opcode::prmt);
    expect_args(4);
    i_.mode = static_cast<std::uint8_t>(mode + 1);
  }
  void lookup() {
    three_words(opcode::lop3);
    expect_args(5);
    i_.immediate = immediate(arg(4)) & 0xff;
  }
  void funnel() {
    const bool left = m_->take_one({"r", "l"}) == 1;
    const int mode = m_->take_one({"clamp", "wrap"});
    if (mode < 0) fail("missing .clamp or .wrap");
    three_words(left ? opcode::shf_l : opcode::shf_r);
    expect_args(4);
    i_.mode = static_cast<std::uint8_t>(mode);
  }
  void dot_product() {
    const type a = take_type();
    three_words(opcode::dp4a);
    i_.t2 = i_.t;
    i_.t = a;
    expect_args(4);
  }

  void compare() {
    i_.op = opcode::setp;
    comparison_modifiers();
    i_.t2 = take_type();
    i_.t = i_.t2;
    i_.o[0] = predicate(arg(0));
    i_.o[1] = arg(0).parts.empty() ? no_row : predicate(arg(0).parts[0]);
    comparison_operands();
  }
  void set() {
    i_.op = opcode::set;
    comparison_modifiers();
    i_.t = take_type();
    i_.t2 = take_type();
    if (bits_of(i_.t) != 32) fail("unknown destination type");
    i_.o[0] = destination(arg(0), i_.t);
    comparison_operands();
  }
  void comparison_modifiers() {
    const auto c = m_->take_from(comparison_names);
    if (!c) fail("missing comparison");
    i_.compare = *c;
    i_.ftz = m_->take("ftz");
    i_.mode = static_cast<std::uint8_t>(m_->take_one({"and", "or", "xor"}) + 1);
  }
  void comparison_operands() {
    i_.o[2] = source(arg(1), i_.t2);
    i_.o[3] = source(arg(2), i_.t2);
    expect_args(i_.mode != 0 ? 4 : 3);
    if (i_.mode != 0) {
      i_.o[4] = predicate(arg(3));
      i_.sat = arg(3).negated;  // combine with the negated predicate
    }
  }
  void select() {
    i_.op = opcode::selp;
    i_.t = take_type();
    expect_args(4);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
    i_.o[2] = source(arg(2), i_.t);
    i_.o[3] = predicate(arg(3));
    i_.sat = arg(3).negated;
  }
  void select_sign() {
    i_.op = opcode::slct;
    m_->take("ftz");
    i_.t = take_type();
    i_.t2 = take_type();
    expect_args(4);
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
    i_.o[2] = source(arg(2), i_.t);
    i_.o[3] = source(arg(3), type::u32);
  }
  void move() {
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
    i_.op = opcode::mov;
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
  }
  void pack(opcode op, const operand& whole, const operand& parts) {
    const auto n = parts.parts.size();
    const int bits = bits_of(i_.t) / static_cast<int>(n);
    if ((n != 2 && n != 4) || bits < 8) fail("unknown shape of a packed move");
    i_.op = op;
    i_.wide = bits_of(i_.t) == 64;
    i_.mode = static_cast<std::uint8_t>(bits);
    i_.vector = static_cast<std::uint8_t>(n);
    i_.o[0] = op == opcode::pack ? destination(whole, i_.t) : source(whole, i_.t);
    for (std::size_t k = 0; k < n; ++k)
      if (parts.parts[k].kind != operand_kind::sink)
        i_.o[1 + k] = source(parts.parts[k], type::b32);
  }
  void convert() {
    i_.op = opcode::cvt;
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
  void copy_sign() { arithmetic<opcode::copysign>(); }
  void test_property() {
    i_.op = opcode::testp;
    const int what =
        m_->take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    if (what < 0) fail("missing property");
    i_.mode = static_cast<std::uint8_t>(what);
    i_.t = take_type();
    expect_args(2);
    i_.o[0] = predicate(arg(0));
    i_.o[1] = source(arg(1), i_.t);
  }

  // ---- memory ----

  // Hints that have no effect on results.
  void take_hints() {
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
  state_space take_space() {
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
  template <opcode Op>
  void load_store() {
    i_.op = Op;
    i_.space = take_space();
    take_hints();
    const bool hint = m_->take("L2::cache_hint");
    i_.vector = m_->take("v2") ? 2 : m_->take("v4") ? 4 : 1;
    i_.t = take_type();
    const operand& data = arg(Op == opcode::load ? 0 : 1);
    const operand& where = arg(Op == opcode::load ? 1 : 0);
    expect_args(hint ? 3 : 2);
    if (Op == opcode::store &&
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
      i_.o[k] = Op == opcode::load ? destination(d, t) : source(d, t);
    }
  }
  void to_address() {
    const bool to = m_->take("to");
    i_.space = take_space();
    i_.t = take_type();
    i_.op = to ? opcode::from_generic : opcode::to_generic;
    expect_args(2);
    i_.wide = bits_of(i_.t) == 64;
    i_.o[0] = destination(arg(0), i_.t);
    i_.o[1] = source(arg(1), i_.t);
  }
  void which_space() {
    i_.op = opcode::is_space;
    i_.space = take_space();
    expect_args(2);
    i_.o[0] = predicate(arg(0));
    i_.wide = true;
    i_.o[1] = source(arg(1), type::b64);
  }
  void atomic() {
    i_.op = opcode::atomic;
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
  void ignored() {  // fences, prefetches, cache policies: no effect on one machine's results
    i_.op = opcode::nop;
    while (!m_->left().empty()) m_->take(m_->left());
  }
  void cache_policy() {
    ignored();
    i_.op = opcode::mov;
    i_.t = type::b64;
    i_.o[0] = destination(arg(0), type::b64);
    i_.o[1] = constant(0, true);
  }

  // ---- warp-wide ----

  void shuffle() {
    i_.op = opcode::shfl;
    const int mode = m_->take_one({"idx", "up", "down", "bfly"});
    if (!m_->take("sync") || mode < 0) fail("only shfl.sync with a mode is known");
    i_.mode = static_cast<std::uint8_t>(mode);
    i_.t = take_type();
    expect_args(5);
    i_.o[0] = destination(arg(0), type::b32);
    i_.o[1] = arg(0).parts.empty() ? no_row : predicate(arg(0).parts[0]);
    for (std::size_t k = 1; k < 5; ++k) i_.o[1 + k] = source(arg(k), type::b32);
  }
  void vote() {
    i_.op = opcode::vote;
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
  void match() {
    i_.op = opcode::match;
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
  void active_mask() {
    i_.op = opcode::activemask;
    i_.t = take_type();
    expect_args(1);
    i_.o[0] = destination(arg(0), type::b32);
  }
  void reduce() {
    i_.op = opcode::redux;
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
  void elect() {
    i_.op = opcode::elect;
    if (!m_->take("sync")) fail("only elect.sync is known");
    expect_args(2);
    i_.o[0] = arg(0).kind == operand_kind::sink ? no_row : destination(arg(0), type::b32);
    if (arg(0).parts.empty()) fail("missing predicate");
    i_.o[1] = predicate(arg(0).parts[0]);
    i_.o[2] = source(arg(1), type::b32);
  }
  void fragment(std::size_t k, std::size_t n, std::size_t at) {
    const operand& v = arg(k);
    if (v.kind != operand_kind::vector) {
      if (n != 1) fail("expected a vector of registers");
      i_.o[at] = source(v, type::b32);
      return;
    }
    if (v.parts.size() != n) fail(fmt::format("expected {} registers", n));
    for (std::size_t e = 0; e < n; ++e) i_.o[at + e] = source(v.parts[e], type::b32);
  }
  void mma() {
    i_.op = opcode::mma;
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
  void move_matrix() {
    i_.op = opcode::movmatrix;
    if (!m_->take("sync") || !m_->take("aligned") || !m_->take("m8n8") || !m_->take("trans") ||
        !m_->take("b16"))
      fail("unknown shape");
    expect_args(2);
    i_.o[0] = destination(arg(0), type::b32);
    i_.o[1] = source(arg(1), type::b32);
  }
  template <opcode Op>
  void matrix_access() {
    i_.op = Op;
    if (!m_->take("sync") || !m_->take("aligned") || !m_->take("m8n8")) fail("unknown shape");
    const int count = m_->take_one({"x1", "x2", "x4"});
    if (count < 0) fail("missing count");
    i_.vector = static_cast<std::uint8_t>(1 << count);
    i_.mode = m_->take("trans") ? 1 : 0;
    i_.space = take_space();
    if (!m_->take("b16")) fail("only .b16 is known");
    expect_args(2);
    fragment(Op == opcode::ldmatrix ? 0 : 1, i_.vector, 0);
    i_.o[8] = address(arg(Op == opcode::ldmatrix ? 1 : 0), i_.immediate, i_.wide);
  }

  // ---- asynchronous copies ----

  void copy_async() {
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
    i_.op = opcode::cp_async;
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
      i_.o[2] = is_predicate(arg(3)) ? (fail("ignore-src is unknown"), no_row)
                                     : source(arg(3), type::u32);
  }
  void bulk() {
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
  void mbarrier() {
    const int what =
        m_->take_one({"init", "inval", "arrive", "expect_tx", "test_wait", "try_wait"});
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

  // ---- control ----

  void barrier() {
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
  void branch() {
    m_->take("uni");
    i_.op = opcode::branch;
    i_.control = true;
    expect_args(1);
    if (arg(0).kind != operand_kind::label) fail("unknown target");
    const std::size_t at = body_.find_label(arg(0).text, source_->scope);
    if (at == std::string_view::npos) fail(fmt::format("unknown label '{}'", arg(0).text));
    i_.immediate = static_cast<std::int64_t>(at);
  }
  void leave() {
    m_->take("uni");
    i_.op = opcode::exit;
    i_.control = true;
  }
  void trap() { i_.op = opcode::trap; }

  // Branch targets are positions among the statements until all instructions have theirs.
  void resolve_branches() {
    positions_.resize(body_.instructions.size() + 1, static_cast<std::int32_t>(out_->code.size()));
    for (const std::size_t b : branches_)
      out_->code[b].target = positions_[static_cast<std::size_t>(out_->code[b].immediate)];
  }

  body body_;
  std::unique_ptr<program> out_;
  std::vector<std::uint32_t> rows_;  // by register
  std::map<std::pair<std::uint64_t, bool>, std::uint32_t> constants_;
  std::map<std::pair<special, bool>, std::uint32_t> specials_;
  std::vector<std::int32_t> positions_;  // statement -> decoded instruction
  std::vector<std::size_t> branches_;
  const instruction_source* source_ = nullptr;
  modifiers* m_ = nullptr;
  instruction i_;
  std::int32_t guard_ = -1;
};

std::unordered_map<std::string_view, decoder::method> decoder::methods() {
  using d = decoder;
  using o = opcode;
  return {{"add", &d::arithmetic<o::add>},
          {"sub", &d::arithmetic<o::sub>},
          {"addc", &d::arithmetic<o::addc>},
          {"subc", &d::arithmetic<o::subc>},
          {"min", &d::arithmetic<o::min>},
          {"max", &d::arithmetic<o::max>},
          {"abs", &d::arithmetic<o::abs>},
          {"neg", &d::arithmetic<o::neg>},
          {"rem", &d::arithmetic<o::rem>},
          {"brev", &d::arithmetic<o::brev>},
          {"copysign", &d::copy_sign},
          {"mul", &d::multiply},
          {"mad", &d::multiply_add},
          {"madc", &d::multiply_add},
          {"fma", &d::multiply_add},
          {"div", &d::rounded<o::div>},
          {"sqrt", &d::rounded<o::sqrt>},
          {"rcp", &d::rounded<o::rcp>},
          {"ex2", &d::exp2},
          {"and", &d::logic<o::band, o::pred_and>},
          {"or", &d::logic<o::bor, o::pred_or>},
          {"xor", &d::logic<o::bxor, o::pred_xor>},
          {"not", &d::logic<o::bnot, o::pred_not>},
          {"shl", &d::shift<o::shl>},
          {"shr", &d::shift<o::shr>},
          {"popc", &d::bit_count<o::popc>},
          {"clz", &d::bit_count<o::clz>},
          {"bfind", &d::bit_count<o::bfind>},
          {"bfe", &d::extract},
          {"bfi", &d::insert},
          {"prmt", &d::permute},
          {"lop3", &d::lookup},
          {"shf", &d::funnel},
          {"dp4a", &d::dot_product},
          {"setp", &d::compare},
          {"set", &d::set},
          {"selp", &d::select},
          {"slct", &d::select_sign},
          {"mov", &d::move},
          {"cvt", &d::convert},
          {"testp", &d::test_property},
          {"ld", &d::load_store<o::load>},
          {"ldu", &d::load_store<o::load>},
          {"st", &d::load_store<o::store>},
          {"cvta", &d::to_address},
          {"isspacep", &d::which_space},
          {"atom", &d::atomic},
          {"red", &d::atomic},
          {"membar", &d::ignored},
          {"fence", &d::ignored},
          {"prefetch", &d::ignored},
          {"prefetchu", &d::ignored},
          {"applypriority", &d::ignored},
          {"discard", &d::ignored},
          {"nanosleep", &d::ignored},
          {"griddepcontrol", &d::ignored},
          {"setmaxnreg", &d::ignored},
          {"createpolicy", &d::cache_policy},
          {"shfl", &d::shuffle},
          {"vote", &d::vote},
          {"match", &d::match},
          {"activemask", &d::active_mask},
          {"redux", &d::reduce},
          {"elect", &d::elect},
          {"mma", &d::mma},
          {"movmatrix", &d::move_matrix},
          {"ldmatrix", &d::matrix_access<o::ldmatrix>},
          {"stmatrix", &d::matrix_access<o::stmatrix>},
          {"cp", &d::copy_async},
          {"mbarrier", &d::mbarrier},
          {"bar", &d::barrier},
          {"barrier", &d::barrier},
          {"bra", &d::branch},
          {"ret", &d::leave},
          {"exit", &d::leave},
          {"trap", &d::trap}};
}

}  // namespace

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
