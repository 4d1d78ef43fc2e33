// Turns the syntax of one entry into a program. One class; the families of instructions are in
// decode_arithmetic.cpp, decode_memory.cpp, decode_warp_wide.cpp, decode_async.cpp and
// decode_control.cpp, each with its part of the table of instruction names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu/device/emulator/decode/program.hpp"

namespace kvproof::gpu::emulator {

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
  decoder(const module_source& module, const entry_source& entry);
  std::unique_ptr<program> finish();

 private:
  // How an instruction is decoded; the opcode is the method's argument.
  struct method {
    void (decoder::*run)();
    opcode op;
  };
  using method_table = std::unordered_map<std::string_view, method>;

  // ---- operands, registers, one instruction (decoder.cpp) ----

  void place_variables();
  std::uint32_t new_row(bool wide);
  [[noreturn]] void fail(const std::string& what) const;
  const operand& arg(std::size_t k) const;
  std::size_t num_args() const;
  bool is_predicate(const operand& o) const;
  bool is_wide(const operand& o) const;
  std::uint32_t constant(std::uint64_t bits, bool wide);
  std::uint32_t special_register(std::string_view name, bool wide);
  std::uint64_t literal(const operand& o, type t) const;
  // Row of a source operand of type t.
  std::uint32_t source(const operand& o, type t);
  std::uint32_t destination(const operand& o, type t);
  std::uint32_t predicate(const operand& o);
  std::int64_t immediate(const operand& o) const;
  // Row of an address operand; the offset is returned through `offset`, its width through `wide`.
  std::uint32_t address(const operand& o, std::int64_t& offset, bool& wide);
  // An address without offset, for instructions with several of them.
  std::uint32_t plain_address(const operand& o, bool& wide);
  void push(const instruction& i);
  void decode_one(const instruction_source& s);
  void expect_args(std::size_t n) const;
  static bool is_float(type t);
  type take_type();
  // Branch targets are positions among the statements until all instructions have theirs.
  void resolve_branches();

  // ---- decode_arithmetic.cpp ----

  static void add_arithmetic(method_table& table);
  void float_modifiers();
  // d, a (, b (, c)) of one type
  void arithmetic();
  static type widened(type t);
  void multiply();
  void multiply_add();
  // div, sqrt, rcp: integer, or float with its rounding
  void rounded();
  void exp2();
  void logic();
  void shift();
  void bit_count();
  void extract();
  void insert();
  void three_words();
  void permute();
  void lookup();
  void funnel();
  void dot_product();
  void compare();
  void set();
  void comparison_modifiers();
  void comparison_operands();
  void select();
  void select_sign();
  void move();
  void pack(opcode op, const operand& whole, const operand& parts);
  void convert();
  void test_property();

  // ---- decode_memory.cpp ----

  static void add_memory(method_table& table);
  // Hints that have no effect on results.
  void take_hints();
  state_space take_space();
  void load_store();
  void to_address();
  void which_space();
  void atomic();
  // fences, prefetches, cache policies: no effect on one machine's results
  void ignored();
  void cache_policy();

  // ---- decode_warp_wide.cpp ----

  static void add_warp_wide(method_table& table);
  void shuffle();
  void vote();
  void match();
  void active_mask();
  void reduce();
  void elect();
  void fragment(std::size_t k, std::size_t n, std::size_t at);
  void mma();
  void move_matrix();
  void matrix_access();

  // ---- decode_async.cpp ----

  static void add_async(method_table& table);
  void copy_async();
  void bulk();
  void mbarrier();

  // ---- decode_control.cpp ----

  static void add_control(method_table& table);
  void barrier();
  void branch();
  void leave();
  void trap();

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

}  // namespace kvproof::gpu::emulator
