// Names, totals and exit codes, see verdict.hpp.
#include "verify/verdict.hpp"

#include <array>

#include "verify/exit_codes.hpp"

namespace kvproof::verify {

std::string_view name_of(verdict v) {
  constexpr std::array<std::string_view, 5> names = {"PASSED", "FAILED", "SKIPPED", "VACUOUS",
                                                     "FAULT"};
  return names[static_cast<std::size_t>(v)];
}

run_totals total_of(std::span<const case_result> results) {
  run_totals t;
  for (const case_result& r : results) {
    ++t.cases;
    switch (r.result) {
      case verdict::passed:
        ++t.passed;
        break;
      case verdict::failed:
        ++t.failed;
        break;
      case verdict::skipped:
        ++t.skipped;
        break;
      case verdict::vacuous:
        ++t.vacuous;
        break;
      case verdict::fault:
        ++t.faults;
        break;
    }
    t.compared += r.compared;
    t.outputs += r.outputs;
    t.mismatches += r.mismatches;
  }
  return t;
}

int exit_code_of(std::span<const case_result> results) {
  const run_totals t = total_of(results);
  if (t.faults > 0) return exit_device_fault;
  if (t.failed + t.vacuous > 0) return exit_mismatch;
  return t.passed == 0 ? exit_nothing_ran : exit_pass;
}

}  // namespace kvproof::verify
