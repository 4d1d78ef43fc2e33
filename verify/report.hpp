// Reports of a run: one console line a case, totals that add up, JSONL with a header and a trailer,
// JUnit, and evidence per kernel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "verify/case_runner.hpp"

namespace kvproof::verify {

struct run_facts {
  gpu::device_info device;
  std::string source;  // trace file or suite name
  std::string commit;  // of the sources, or "unknown"
  std::string date;    // UTC, ISO 8601
  std::uint64_t seed = 0;
  std::string
      rerun_options;  // what `kvproof repro CASE` needs besides: "--seed 1 --device emulator"
};

struct run_totals {
  std::int64_t cases = 0, passed = 0, failed = 0, skipped = 0, vacuous = 0, faults = 0;
  std::int64_t compared = 0, mismatches = 0;
};
[[nodiscard]] run_totals total_of(std::span<const case_result> results);

// "PASSED minikv-2bit/...: 123456 elements, 0 mismatches  | kvproof repro ... --seed 1"
[[nodiscard]] std::string case_line(const case_result& r, const run_facts& facts);
[[nodiscard]] std::string summary(std::span<const case_result> results, const run_facts& facts);

// All three write to a temporary file and rename; evidence keeps the lines of other devices and
// kernels.
void write_jsonl(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts);
void write_junit(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts);
void write_evidence(const std::filesystem::path& file, std::span<const case_result> results,
                    const run_facts& facts);

// Exit code of the results: 0 all passed, 1 a mismatch or vacuous case, 4 a fault, 77 nothing ran.
[[nodiscard]] int exit_code_of(std::span<const case_result> results);

}  // namespace kvproof::verify
