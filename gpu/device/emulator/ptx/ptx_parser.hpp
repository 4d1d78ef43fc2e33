// Syntax of a PTX module. The top level is read for every module; the body of an entry is read only
// when that entry is loaded, so that an instruction unknown to the emulator harms no other kernel.
// Scopes are resolved here: registers, variables and labels are indices afterwards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device/emulator/ptx/ptx_lexer.hpp"

namespace kvproof::gpu::emulator {

enum class state_space : std::uint8_t { generic, global, shared, local, constant, param };

struct variable {
  std::string_view name;
  state_space space = state_space::global;
  std::int64_t align = 1;
  std::int64_t size_bytes = 0;  // 0: dynamic shared memory, `.extern .shared x[]`
  std::vector<unsigned char> initial;
  std::int64_t address = 0;  // filled while loading: offset in its space, or the global address
  int line = 0;
};

struct entry_source {
  std::string_view name;
  int max_threads = 0;
  std::vector<variable> params;
  std::size_t body_begin = 0;  // token range inside the outer braces
  std::size_t body_end = 0;
};

// Line of the source that a compiler names by `.loc`; line 0 where it names none.
struct source_place {
  int file = 0;  // as in `.file`
  int line = 0;
};

struct module_source {
  std::string name;
  std::string text;
  std::vector<token> tokens;
  std::vector<variable> variables;
  std::vector<entry_source> entries;
  std::map<int, std::string> files;  // by the number of `.file`
};

enum class operand_kind : std::uint8_t {
  reg,
  immediate,
  symbol,
  label,
  special,
  sink,
  vector,
  none
};

struct operand {
  operand_kind kind = operand_kind::none;
  bool address = false;        // written in brackets
  bool negated = false;        // !p
  int index = -1;              // register, or index into body::variables
  std::uint64_t bits = 0;      // immediate: integer, or bits of a double / float literal
  char literal = 'i';          // 'i' integer, 'f' 32-bit pattern, 'd' 64-bit pattern
  std::int64_t offset = 0;     // [x + offset]
  std::string_view text;       // label or special register
  std::vector<operand> parts;  // {a, b}; or the second destination of p|q
};

struct register_decl {
  std::string_view name;
  int bits = 0;  // 1 predicate, 16, 32, 64
};

struct instruction_source {
  int line = 0;
  source_place place;
  int guard = -1;
  bool guard_negated = false;
  std::string_view opcode;
  std::vector<operand> operands;
  int scope = 0;
};

struct label_decl {
  std::string_view name;
  int scope = 0;
  std::size_t position = 0;  // index of the instruction that follows
};

struct body {
  std::vector<register_decl> registers;
  std::vector<variable> variables;  // module variables, parameters and the entry's own
  std::vector<instruction_source> instructions;
  std::vector<label_decl> labels;
  std::vector<int> scope_parent;
  std::deque<std::string> register_names;  // owns the names of `.reg %r<n>`

  // Position of the label seen from `scope`, or npos.
  [[nodiscard]] std::size_t find_label(std::string_view name, int scope) const;
};

// Both throw spec::device_error with module name and line.
[[nodiscard]] module_source parse_module(std::string_view name, std::string_view ptx);
[[nodiscard]] body parse_body(const module_source& module, const entry_source& entry);

}  // namespace kvproof::gpu::emulator
