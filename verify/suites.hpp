// Which cases a run consists of: suites by name or by file, one case by id, filters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "verify/test_case.hpp"

namespace kvproof::verify {

struct case_request {
  // smoke: short, stream, tier, listed and score update cases; ci: smoke and the trace; nightly:
  // ci, long cases, listed ones in every regime, score updates of every kind and, unless told
  // otherwise, all steps of the trace; FILE: a case glob a line, # begins a comment. Empty: stream,
  // listed, score update cases, a few of tiers, and the trace, or the named trace alone.
  std::string suite;
  std::string case_id;          // not empty: exactly this case of all there are
  std::string filter = "*";     // glob that ids must match
  std::string variant = "all";  // only cases of this variant's format or of tiers; trace cases: of
                                // it alone
  std::filesystem::path trace;  // empty: the shipped one
  std::string steps;            // decode steps of trace cases: a number, "all", or empty: 64
};

struct selected_cases {
  std::vector<test_case> cases;
  std::string source;  // in words: suite, trace
};

// `shipped_trace` is asked only when a case may need it: a synthetic case opens no file. Throws
// usage_error when nothing is selected, input_error for a bad trace.
[[nodiscard]] selected_cases select_cases(
    const case_request& request, const std::function<std::filesystem::path()>& shipped_trace);

// '*' and '?' as in a shell; the whole text must match.
[[nodiscard]] bool matches_glob(std::string_view text, std::string_view glob);

// For the shell: quoted when it has to be.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace kvproof::verify
