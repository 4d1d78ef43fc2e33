// Evidence: what hardware has confirmed of each kernel, one JSON line a kernel behind a header line
// (verify/evidence/h200.jsonl). A kernel is named by its entry and the sha256 of its PTX, so that a
// changed kernel is seen to be unconfirmed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/report.hpp"
#include "verify/verdict.hpp"

namespace kvproof::verify {

struct kernel_evidence {
  std::string kernel;      // entry name
  std::string ptx_sha256;  // of the module's PTX
  std::string verdict;     // "PASSED" or "FAILED"
  std::int64_t cases = 0, compared = 0, mismatches = 0;
  std::string device, driver;  // the driver is empty on the emulator
  std::string source, commit, date;
};

// Throws input_error naming `file` and the line for anything but a header of this schema and
// version followed by well-formed lines, at most one a (kernel, device).
[[nodiscard]] std::vector<kernel_evidence> parse_evidence(std::string_view text,
                                                          const std::string& file);
// As parse_evidence(); empty when there is no such file.
[[nodiscard]] std::vector<kernel_evidence> read_evidence(const std::filesystem::path& file);

// What a run says of the kernels that ran, in the order of the kernel table.
[[nodiscard]] std::vector<kernel_evidence> evidence_of(std::span<const case_result> results,
                                                       const run_facts& facts);

// `now` replaces the lines of its kernels on its device, all other lines of `before` stay.
[[nodiscard]] std::vector<kernel_evidence> merge_evidence(std::vector<kernel_evidence> before,
                                                          std::span<const kernel_evidence> now);

// Writes via a temporary file and a rename. Throws usage_error.
void write_evidence(const std::filesystem::path& file, std::span<const kernel_evidence> lines);

// A kernel of this build; evidence must cover each.
struct built_kernel {
  std::string entry;
  std::string ptx_sha256;
};
[[nodiscard]] std::vector<built_kernel> built_kernels();

// The kernels that hardware has not confirmed as they are built, each with the reason; empty when
// all are confirmed. Lines of the emulator confirm nothing.
[[nodiscard]] std::vector<std::string> unconfirmed_kernels(std::span<const built_kernel> built,
                                                           std::span<const kernel_evidence> lines);

}  // namespace kvproof::verify
