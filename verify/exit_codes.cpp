// See exit_codes.hpp.
#include "verify/exit_codes.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "reference/spec/error.hpp"
#include "verify/device_choice.hpp"

namespace kvproof::verify {

namespace {

template <typename Error>
bool is(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

}  // namespace

int exit_code_of(const std::exception& error) {
  if (is<nothing_to_run_error>(error)) return exit_nothing_ran;
  if (is<spec::usage_error>(error)) return exit_usage;
  if (is<spec::input_error>(error)) return exit_bad_input;
  if (is<spec::device_error>(error)) return exit_device_fault;
  return exit_internal;
}

std::string error_line(const std::exception& error) {
  if (exit_code_of(error) != exit_internal) return fmt::format("kvproof: {}", error.what());
  return fmt::format(
      "kvproof: internal error: {}; this is a bug of kvproof, please report it with the command",
      error.what());
}

int run_guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error_line(error));
    return exit_code_of(error);
  }
}

}  // namespace kvproof::verify
