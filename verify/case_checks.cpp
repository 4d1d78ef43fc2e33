// Counts and verdicts, see case_checks.hpp.
#include "verify/case_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.hpp"

namespace kvproof::verify {

void case_checks::note_entry(std::string_view entry) {
  if (std::ranges::find(result_.entries, entry) == result_.entries.end())
    result_.entries.emplace_back(entry);
}

bool case_checks::note(const std::string& stage, const comparison& c, std::int64_t outputs) {
  if (result_.stages.empty() || result_.stages.back().name != stage)
    result_.stages.push_back({stage});
  stage_result& here = result_.stages.back();
  here.compared += c.compared;
  here.outputs += outputs;
  result_.compared += c.compared;
  result_.outputs += outputs;
  if (!c.mismatch) return true;
  here.mismatches += c.mismatch->count;
  result_.mismatches += c.mismatch->count;
  result_.result = verdict::failed;
  result_.detail = fmt::format("{}: {}", stage, c.mismatch->first);
  if (!c.mismatch->pattern.empty())
    result_.detail += fmt::format("; pattern: {}", c.mismatch->pattern);
  return false;
}

bool case_checks::canaries_live(const std::string& stage,
                                std::span<const fenced_buffer* const> buffers) {
  for (const fenced_buffer* b : buffers) {
    const std::string broken = b->broken_canary();
    if (!broken.empty()) return note(stage, {1, mismatch_report{1, broken, ""}});
  }
  return true;
}

case_result judge_case(const std::string& id, const std::function<void(case_result&)>& play) {
  case_result result;
  result.id = id;
  try {
    play(result);
  } catch (const spec::device_error& error) {
    result.result = verdict::fault;
    result.detail = error.what();
  } catch (const spec::contract_error& error) {
    throw spec::contract_error(fmt::format("{}: {}", id, error.what()));
  }
  if (result.result == verdict::passed && result.outputs == 0) {
    result.result = verdict::vacuous;
    result.detail = "no kernel had an element to write; lengthen the prompt or take more steps";
  }
  return result;
}

}  // namespace kvproof::verify
