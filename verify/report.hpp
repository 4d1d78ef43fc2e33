// Reports of a run: one console line a case, totals that add up, JSONL with a header and a trailer,
// and JUnit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "gpu/device/device.hpp"
#include "verify/verdict.hpp"

namespace kvproof::verify {

struct run_facts {
  gpu::device_info device;
  std::string source;  // trace file or suite name
  std::string commit;  // of the sources, or "unknown"
  std::string date;    // UTC, ISO 8601
  std::uint64_t seed = 0;
};

// "kvproof repro CASE --seed 1 OPTIONS".
[[nodiscard]] std::string rerun_command(const std::string& case_id, std::uint64_t seed,
                                        const std::string& options);

// "PASSED minikv-2bit/...: 123456 elements, 0 mismatches  | kvproof repro ... --seed 1"
[[nodiscard]] std::string case_line(const case_result& r);
// "  step 3/decode  123456 elements, 0 mismatches", one line a stage.
[[nodiscard]] std::string stage_lines(const case_result& r);
[[nodiscard]] std::string summary(std::span<const case_result> results, const run_facts& facts);

// Both write to a temporary file and rename it. Throw usage_error when the file cannot be written.
void write_jsonl(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts);
void write_junit(const std::filesystem::path& file, std::span<const case_result> results,
                 const run_facts& facts);

}  // namespace kvproof::verify
