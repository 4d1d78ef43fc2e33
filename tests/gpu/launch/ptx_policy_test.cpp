// The embedded PTX uses only operations whose bits the contract defines: every fp32 and fp16
// operation names its rounding, the one approximation is ex2.approx.ftz.f32, nothing is added
// atomically in floating point, nothing lives in local memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/kernels/kernel_table.hpp"

namespace kvproof::gpu {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool has(const std::vector<std::string_view>& parts, std::string_view part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

// The opcode of a line of PTX without label and predicate, empty when there is none.
std::string_view opcode_of(std::string_view line) {
  line = line.substr(0, line.find("//"));
  for (;;) {
    const std::size_t begin = line.find_first_not_of(" \t{}");
    if (begin == std::string_view::npos) return {};
    line.remove_prefix(begin);
    if (line.front() != '@') break;
    line.remove_prefix(std::min(line.find_first_of(" \t"), line.size()));
  }
  const std::string_view word = line.substr(0, line.find_first_of(" \t;,("));
  return word.empty() || word.back() == ':' ? std::string_view{} : word;
}

// Why an opcode is not allowed, empty when it is.
std::string objection_to(std::string_view opcode) {
  const std::vector<std::string_view> parts = parts_of(opcode, '.');
  const std::string_view operation = parts.front();
  const auto is_one_of = [&](auto... names) { return ((operation == names) || ...); };
  const bool is_float = has(parts, "f32") || has(parts, "f16") || has(parts, "f16x2") ||
                        has(parts, "bf16") || has(parts, "bf16x2") || has(parts, "f64");
  if (has(parts, "local")) return "local memory: registers were spilled or indexed at run time";
  if (operation == "ex2") return opcode == "ex2.approx.ftz.f32" ? "" : "another ex2";
  if (has(parts, "approx")) return "an approximation";
  if (is_one_of("sin", "cos", "lg2", "tanh", "rcp", "rsqrt")) return "a function outside the list";
  if (is_float && (has(parts, "ftz") || has(parts, "sat"))) return "flushes or saturates";
  if (is_float && is_one_of("atom", "red")) return "a floating-point atomic";
  if (has(parts, "f64") && operation != "mov") return "fp64";
  if (is_float && is_one_of("mul", "add", "sub", "fma", "div", "sqrt", "mad") && !has(parts, "rn"))
    return "no .rn";
  if (operation == "cvt" && is_float) {
    // Widening is exact and takes no rounding; narrowing and conversion of integers must name it.
    const bool widens = opcode == "cvt.f32.f16";
    if (!widens && !has(parts, "rn") && !has(parts, "rni")) return "a conversion without .rn";
  }
  if (is_one_of("mma", "wgmma") && opcode != "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" &&
      opcode != "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32")  // exact
    return "another matrix product";
  return {};
}

BOOST_AUTO_TEST_CASE(every_instruction_is_allowed) {
  for (const kernel_module& m : kernel_modules()) {
    std::size_t number = 0, instructions = 0, matrix_products = 0;
    for (const std::string_view line : parts_of(m.ptx, '\n')) {
      ++number;
      const std::string_view opcode = opcode_of(line);
      if (opcode.empty()) continue;
      if (opcode == ".local" || line.find(".local ") != std::string_view::npos)
        BOOST_ERROR(fmt::format("{}.ptx:{}: local memory", m.name, number));
      if (opcode.front() == '.') continue;
      ++instructions;
      matrix_products += opcode.substr(0, 4) == "mma.";
      const std::string objection = objection_to(opcode);
      if (!objection.empty())
        BOOST_ERROR(fmt::format("{}.ptx:{}: {}: {}", m.name, number, opcode, objection));
    }
    // The scan saw a program, not a format it does not understand.
    BOOST_TEST(instructions > 200u, m.name);
    BOOST_TEST((matrix_products > 0) == (m.name.substr(0, 6) == "decode"), m.name);
  }
}

BOOST_AUTO_TEST_CASE(the_scan_objects) {
  constexpr std::array refused = {
      "\tadd.f32 \t%f1, %f2, %f3;",
      "@%p1 mul.f32 %f1, %f2, %f3;",
      "\tfma.rn.ftz.f32 %f1, %f2, %f3, %f4;",
      "\tex2.approx.f32 %f1, %f2;",
      "\tdiv.full.f32 %f1, %f2, %f3;",
      "\tdiv.approx.f32 %f1, %f2, %f3;",
      "\trcp.rn.f32 %f1, %f2;",
      "\tatom.global.add.f32 %f1, [%rd1], %f2;",
      "\tred.global.add.f32 [%rd1], %f2;",
      "\tst.local.u32 [%rd1], %r1;",
      "\tcvt.rz.f16.f32 %rs1, %f1;",
      "\tcvt.rzi.s32.f32 %r1, %f1;",
      "\tadd.f16x2 %r1, %r2, %r3;",
      "\tmma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1}, {%r2}, {%r3}, {%r4};",
  };
  for (const char* const line : refused)
    BOOST_TEST(!objection_to(opcode_of(line)).empty(), line << " passed");
  constexpr std::array allowed = {
      "\tex2.approx.ftz.f32 %f1, %f2;", "{ mul.rn.f16x2 %r1,%r2,%r3; }",
      "@!%p2 bra \t$L__BB0_3;",         "\tatom.global.add.u32 %r1, [%rd1], %r2;",
      "\tmax.f32 %f1, %f2, %f3;",       "\tcvt.rni.s32.f32 %r1, %f1;",
      "{  cvt.f32.f16 %f1, %rs1;}",     "\tadd.s64 %rd1, %rd2, 4;",
  };
  for (const char* const line : allowed)
    BOOST_TEST(objection_to(opcode_of(line)).empty(), line << " was refused");
}

}  // namespace
}  // namespace kvproof::gpu
