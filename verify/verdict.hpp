// What a case and a run come to: verdicts, counts, and the exit code that follows from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvproof::verify {

enum class verdict : std::uint8_t { passed, failed, skipped, vacuous, fault };
[[nodiscard]] std::string_view name_of(verdict v);

struct stage_result {
  std::string name;           // "prompt/quantize", "step 3/decode"
  std::int64_t compared = 0;  // elements: fp32 values, page bytes, table and length entries
  std::int64_t outputs = 0;   // those of them that the stage's kernel had to write
  std::int64_t mismatches = 0;
};

struct case_result {
  std::string id;
  verdict result = verdict::passed;
  std::int64_t compared = 0;
  std::int64_t outputs = 0;  // 0: VACUOUS, whatever else was compared
  std::int64_t mismatches = 0;
  std::string detail;  // FAILED: stage, first difference, pattern; otherwise the reason
  std::vector<stage_result> stages;
  std::vector<std::string> entries;  // kernels that were launched
  std::string rerun;                 // the command that runs exactly this case
};

struct run_totals {
  std::int64_t cases = 0, passed = 0, failed = 0, skipped = 0, vacuous = 0, faults = 0;
  std::int64_t compared = 0, outputs = 0, mismatches = 0;
};
[[nodiscard]] run_totals total_of(std::span<const case_result> results);

// Exit code of the results: 0 all passed, 1 a mismatch or vacuous case, 4 a fault, 77 nothing ran.
[[nodiscard]] int exit_code_of(std::span<const case_result> results);

}  // namespace kvproof::verify
