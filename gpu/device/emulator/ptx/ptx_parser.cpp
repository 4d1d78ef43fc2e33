#include "gpu/device/emulator/ptx/ptx_parser.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <map>
#include <optional>

#include "reference/spec/error.hpp"

namespace kvproof::gpu::emulator {
namespace {

std::optional<state_space> space_of(std::string_view directive) {
  if (directive == ".global") return state_space::global;
  if (directive == ".shared") return state_space::shared;
  if (directive == ".local") return state_space::local;
  if (directive == ".const") return state_space::constant;
  if (directive == ".param") return state_space::param;
  return std::nullopt;
}

// Bits of a fundamental type directive such as ".b32"; 0 when it is none.
int type_bits(std::string_view t) {
  if (t == ".pred") return 1;
  if (t == ".f16x2" || t == ".bf16x2") return 32;
  if (t == ".bf16") return 16;
  if (t.size() < 3 || t[0] != '.' || std::string_view("busf").find(t[1]) == std::string_view::npos)
    return 0;
  const std::string_view digits = t.substr(2);
  if (digits == "8") return 8;
  if (digits == "16") return 16;
  if (digits == "32") return 32;
  if (digits == "64") return 64;
  return 0;
}

// A cursor over the tokens of one module.
class reader {
 public:
  reader(const module_source& module, std::size_t begin, std::size_t end)
      : module_(module), pos_(begin), end_(end) {}

  [[nodiscard]] const token& peek(std::size_t ahead = 0) const {
    const std::size_t at = pos_ + ahead;
    return at < end_ ? module_.tokens[at] : module_.tokens.back();
  }
  [[nodiscard]] bool done() const { return pos_ >= end_ || peek().kind == token_kind::end; }
  [[nodiscard]] std::size_t position() const { return pos_; }
  const token& next() {
    const token& t = peek();
    ++pos_;
    return t;
  }
  bool accept(std::string_view s) {
    if (!peek().is(s)) return false;
    ++pos_;
    return true;
  }
  void expect(std::string_view s) {
    if (!accept(s)) fail(fmt::format("expected '{}' but found '{}'", s, peek().text));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw spec::device_error(
        fmt::format("PTX module {}, line {}: {}; the emulator reads PTX of nvcc 13.0", module_.name,
                    peek().line, what));
  }
  // Skips to and over the token that closes an already consumed opening token.
  void skip_balanced(std::string_view open, std::string_view close) {
    for (int depth = 1; depth > 0;) {
      if (done()) fail(fmt::format("missing '{}'", close));
      const token& t = next();
      depth += t.is(open) ? 1 : t.is(close) ? -1 : 0;
    }
  }
  void skip_line() { skip_rest_of(peek().line); }
  void skip_rest_of(int line) {
    while (!done() && peek().line == line) next();
  }
  std::int64_t integer() {
    const bool negative = accept("-");
    const operand value = number(next().text);
    if (value.kind != operand_kind::immediate || value.literal != 'i') fail("expected an integer");
    return negative ? -static_cast<std::int64_t>(value.bits)
                    : static_cast<std::int64_t>(value.bits);
  }
  // An immediate, or kind none when the word is no number.
  operand number(std::string_view s) const;

 private:
  const module_source& module_;
  std::size_t pos_;
  std::size_t end_;
};

operand reader::number(std::string_view s) const {
  operand value;
  if (s.empty() || s[0] < '0' || s[0] > '9') return value;
  value.kind = operand_kind::immediate;
  int base = 10;
  if (s.size() > 2 && s[0] == '0') {
    const char c = s[1];
    if (c == 'f' || c == 'F' || c == 'd' || c == 'D') {
      value.literal = c == 'f' || c == 'F' ? 'f' : 'd';
      base = 16;
      s.remove_prefix(2);
    } else if (c == 'x' || c == 'X') {
      base = 16;
      s.remove_prefix(2);
    } else if (c == 'b' || c == 'B') {
      base = 2;
      s.remove_prefix(2);
    }
  }
  if (base == 10 && s.size() > 1 && (s.back() == 'U' || s.back() == 'u')) s.remove_suffix(1);
  if (base == 10 && s.find('.') != std::string_view::npos) {
    const double d = std::stod(std::string(s));
    std::memcpy(&value.bits, &d, sizeof d);
    value.literal = 'd';
    return value;
  }
  if (base == 10 && s.size() > 1 && s[0] == '0') base = 8;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value.bits, base);
  if (error != std::errc() || end != s.data() + s.size())
    fail(fmt::format("malformed number '{}'", s));
  return value;
}

void read_initialiser(reader& in, variable& v, int element_bits) {
  const auto element_bytes = static_cast<std::size_t>(element_bits / 8);
  const auto read_value = [&] {
    const bool negative = in.accept("-");
    const operand value = in.number(in.peek().text);
    if (value.kind != operand_kind::immediate) in.fail("an initialiser must be a number");
    in.next();
    const std::uint64_t bits = negative ? ~value.bits + 1 : value.bits;
    for (std::size_t b = 0; b < element_bytes; ++b)
      v.initial.push_back(static_cast<unsigned char>(bits >> (8 * b)));
  };
  if (!in.accept("{")) return read_value();
  int depth = 1;
  while (depth > 0) {
    if (in.accept("{")) {
      ++depth;
    } else if (in.accept("}")) {
      --depth;
    } else if (!in.accept(",")) {
      read_value();
    }
  }
}

// After the state space: [.align n] [.v2] .type name [dims] [= init] {, name ...}, without the ';'.
// Of a parameter list it reads one, as each has its own `.param`.
std::vector<variable> read_variables(reader& in, state_space space) {
  std::vector<variable> out;
  std::int64_t align = 0;
  std::int64_t lanes = 1;
  int bits = 0;
  while (bits == 0) {
    const token& t = in.next();
    if (t.is(".align")) {
      align = in.integer();
    } else if (t.is(".v2")) {
      lanes = 2;
    } else if (t.is(".v4")) {
      lanes = 4;
    } else if (t.is(".ptr") || space_of(t.text)) {
      continue;
    } else if ((bits = type_bits(t.text)) == 0) {
      in.fail(fmt::format("unknown type '{}' of a variable", t.text));
    }
  }
  do {
    while (in.peek().is(".ptr") || in.peek().is(".align") || space_of(in.peek().text)) {
      if (in.next().is(".align")) static_cast<void>(in.integer());
    }
    variable v;
    v.space = space;
    v.line = in.peek().line;
    v.name = in.next().text;
    v.size_bytes = bits / 8 * lanes;
    v.align = align != 0 ? align : v.size_bytes;
    while (in.accept("[")) {
      v.size_bytes *= in.peek().is("]") ? 0 : in.integer();
      in.expect("]");
    }
    if (in.accept("=")) read_initialiser(in, v, bits);
    out.push_back(std::move(v));
  } while (space != state_space::param && in.accept(","));
  return out;
}

entry_source read_entry(reader& in) {
  entry_source entry;
  entry.name = in.next().text;
  if (in.accept("(")) {
    while (!in.accept(")")) {
      in.expect(".param");
      for (variable& v : read_variables(in, state_space::param))
        entry.params.push_back(std::move(v));
      in.accept(",");
    }
  }
  std::int64_t at = 0;
  for (variable& v : entry.params) {
    at = (at + v.align - 1) / v.align * v.align;
    v.address = at;
    at += v.size_bytes;
  }
  while (!in.accept("{")) {
    const token& t = in.next();
    if (t.is(".maxntid") || t.is(".reqntid")) {
      std::int64_t threads = in.integer();
      while (in.accept(",")) threads *= in.integer();
      entry.max_threads = static_cast<int>(threads);
    } else if (t.kind == token_kind::end || t.is(";")) {
      in.fail(fmt::format("entry {} has no body", entry.name));
    }
  }
  entry.body_begin = in.position();
  in.skip_balanced("{", "}");
  entry.body_end = in.position() - 1;
  return entry;
}

// Reads the statements of one entry.
class body_reader {
 public:
  body_reader(const module_source& module, const entry_source& entry)
      : in_(module, entry.body_begin, entry.body_end) {
    out_.scope_parent.push_back(-1);
    scopes_.push_back({0, {}, {}});
    for (const variable& v : module.variables) add_variable(v);
    for (const variable& v : entry.params) add_variable(v);
  }

  body read() {
    while (!in_.done()) statement();
    return std::move(out_);
  }

 private:
  struct scope {
    int id;
    std::map<std::string_view, int> registers;
    std::map<std::string_view, int> variables;
  };

  void add_variable(const variable& v) {
    scopes_.back().variables[v.name] = static_cast<int>(out_.variables.size());
    out_.variables.push_back(v);
  }

  void statement() {
    const token& t = in_.peek();
    if (in_.accept("{")) {
      const int id = static_cast<int>(out_.scope_parent.size());
      out_.scope_parent.push_back(scopes_.back().id);
      scopes_.push_back({id, {}, {}});
    } else if (in_.accept("}")) {
      if (scopes_.size() < 2) in_.fail("'}' without '{'");
      scopes_.pop_back();
    } else if (in_.accept(";")) {
      return;
    } else if (t.text.starts_with('.')) {
      directive();
    } else if (t.kind == token_kind::word && in_.peek(1).is(":")) {
      out_.labels.push_back({t.text, scopes_.back().id, out_.instructions.size()});
      in_.next();
      in_.next();
    } else {
      instruction();
    }
  }

  void directive() {
    const token& t = in_.peek();
    if (t.is(".file")) return in_.skip_line();
    in_.next();
    if (t.is(".loc")) {
      read_place();
    } else if (t.is(".pragma")) {
      while (!in_.accept(";")) in_.next();
    } else if (t.is(".reg")) {
      read_registers();
    } else if (const auto space = space_of(t.text)) {
      for (const variable& v : read_variables(in_, *space)) add_variable(v);
      in_.expect(";");
    } else {
      in_.fail(fmt::format("unknown directive '{}'", t.text));
    }
  }

  // .loc file line column [, function_name label [+ offset], inlined_at file line column]: the
  // innermost place counts.
  void read_place() {
    place_.file = static_cast<int>(in_.integer());
    place_.line = static_cast<int>(in_.integer());
    in_.integer();
    while (in_.accept(",")) {
      if (in_.accept("inlined_at")) {
        for (int k = 0; k < 3; ++k) in_.integer();
      } else {
        in_.expect("function_name");
        in_.next();
        if (in_.accept("+")) in_.integer();
      }
    }
  }

  void read_registers() {
    const token& type = in_.next();
    const int bits = type_bits(type.text);
    if (bits == 0) in_.fail(fmt::format("unknown register type '{}'", type.text));
    do {
      const std::string_view name = in_.next().text;
      if (in_.accept("<")) {
        const std::int64_t count = in_.integer();
        in_.expect(">");
        for (std::int64_t i = 0; i < count; ++i) {
          out_.register_names.push_back(fmt::format("{}{}", name, i));
          add_register(out_.register_names.back(), bits);
        }
      } else {
        add_register(name, bits);
      }
    } while (in_.accept(","));
    in_.expect(";");
  }

  void add_register(std::string_view name, int bits) {
    scopes_.back().registers[name] = static_cast<int>(out_.registers.size());
    out_.registers.push_back({name, bits});
  }

  void instruction() {
    instruction_source i;
    i.line = in_.peek().line;
    i.place = place_;
    i.scope = scopes_.back().id;
    if (in_.accept("@")) {
      i.guard_negated = in_.accept("!");
      const operand p = word_operand();
      if (p.kind != operand_kind::reg) in_.fail("a guard must be a predicate register");
      i.guard = p.index;
    }
    i.opcode = in_.next().text;
    while (!in_.accept(";")) {
      if (in_.done()) in_.fail("missing ';'");
      i.operands.push_back(read_operand());
      if (!in_.peek().is(";")) in_.expect(",");
    }
    out_.instructions.push_back(std::move(i));
  }

  operand read_operand() {
    operand o;
    if (in_.accept("{")) {
      o.kind = operand_kind::vector;
      while (!in_.accept("}")) {
        o.parts.push_back(read_operand());
        in_.accept(",");
      }
    } else if (in_.accept("[")) {
      o = word_operand();
      o.address = true;
      while (!in_.accept("]")) {
        const bool minus = in_.accept("-");
        if (!minus) in_.expect("+");
        const std::int64_t value = in_.integer();
        o.offset += minus ? -value : value;
      }
    } else if (in_.accept("!")) {
      o = word_operand();
      o.negated = true;
    } else {
      o = word_operand();
      if (in_.accept("|")) o.parts.push_back(word_operand());
      if (in_.accept("+")) o.offset = in_.integer();
    }
    return o;
  }

  operand word_operand() {
    if (in_.accept("-")) {
      operand o = in_.number(in_.next().text);
      if (o.kind != operand_kind::immediate) in_.fail("'-' before something not a number");
      o.bits = o.literal == 'i'   ? ~o.bits + 1
               : o.literal == 'f' ? o.bits ^ 0x80000000u
                                  : o.bits ^ (std::uint64_t{1} << 63);
      return o;
    }
    const token& t = in_.peek();
    if (t.kind != token_kind::word) in_.fail(fmt::format("unexpected '{}'", t.text));
    in_.next();
    operand o = in_.number(t.text);
    if (o.kind == operand_kind::immediate) return o;
    o.text = t.text;
    if (t.text == "_") {
      o.kind = operand_kind::sink;
      return o;
    }
    for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s) {
      if (const auto r = s->registers.find(t.text); r != s->registers.end()) {
        o.kind = operand_kind::reg;
        o.index = r->second;
        return o;
      }
      if (const auto v = s->variables.find(t.text); v != s->variables.end()) {
        o.kind = operand_kind::symbol;
        o.index = v->second;
        return o;
      }
    }
    o.kind = t.text[0] == '%' || t.text == "WARP_SZ" ? operand_kind::special : operand_kind::label;
    return o;
  }

  reader in_;
  body out_;
  std::vector<scope> scopes_;
  source_place place_;
};

}  // namespace

std::size_t body::find_label(std::string_view name, int scope) const {
  for (; scope >= 0; scope = scope_parent[static_cast<std::size_t>(scope)]) {
    for (const label_decl& l : labels)
      if (l.scope == scope && l.name == name) return l.position;
  }
  return std::string_view::npos;
}

module_source parse_module(std::string_view name, std::string_view ptx) {
  module_source module;
  module.name = name;
  module.text = ptx;
  module.tokens = tokenize(module.text);
  reader in(module, 0, module.tokens.size());
  while (!in.done()) {
    const token& t = in.peek();
    if (t.is(".loc") || t.is(".version") || t.is(".target") || t.is(".address_size")) {
      in.skip_line();
    } else if (in.accept(".file")) {
      const int number = static_cast<int>(in.integer());
      const std::string_view quoted = in.next().text;
      if (quoted.size() < 2 || quoted.front() != '"') in.fail("expected a file name in quotes");
      module.files[number] = quoted.substr(1, quoted.size() - 2);
      in.skip_rest_of(t.line);
    } else if (in.accept(".section")) {
      while (!in.accept("{")) in.next();
      in.skip_balanced("{", "}");
    } else if (in.accept(".entry")) {
      module.entries.push_back(read_entry(in));
    } else if (in.accept(".func")) {
      while (!in.peek().is("{") && !in.peek().is(";") && !in.done()) in.next();
      if (in.next().is("{")) in.skip_balanced("{", "}");
    } else if (t.is(".visible") || t.is(".extern") || t.is(".weak") || t.is(".common") ||
               t.is(";")) {
      in.next();
    } else if (const auto space = space_of(t.text)) {
      in.next();
      for (variable& v : read_variables(in, *space)) module.variables.push_back(std::move(v));
    } else if (in.accept(".pragma")) {
      in.next();
    } else {
      in.fail(fmt::format("unknown directive '{}'", t.text));
    }
  }
  return module;
}

body parse_body(const module_source& module, const entry_source& entry) {
  return body_reader(module, entry).read();
}

}  // namespace kvproof::gpu::emulator
