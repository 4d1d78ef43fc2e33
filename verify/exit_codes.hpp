// Exit codes of the command, and the one place that maps error types to them.
#pragma once

#include <exception>
#include <functional>
#include <string>

namespace kvproof::verify {

inline constexpr int exit_pass = 0;
inline constexpr int exit_mismatch = 1;      // or a vacuous case
inline constexpr int exit_usage = 2;         // unknown option or name, nothing selected
inline constexpr int exit_bad_input = 3;     // a file is missing, malformed or not finite
inline constexpr int exit_device_fault = 4;  // a launch failed or a kernel misbehaved
inline constexpr int exit_internal = 70;     // a bug of kvproof
inline constexpr int exit_nothing_ran = 77;  // no GPU under --device cuda, no kernels in the build

// Everything that is no error of spec/error.hpp, and contract_error, is internal.
[[nodiscard]] int exit_code_of(const std::exception& error);

// The one line on stderr, without its newline.
[[nodiscard]] std::string error_line(const std::exception& error);

// Returns body()'s code; prints the line of what it throws and returns the code of that.
[[nodiscard]] int run_guarded(const std::function<int()>& body);

}  // namespace kvproof::verify
