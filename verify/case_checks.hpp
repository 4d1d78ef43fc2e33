// What the runners of all kinds of cases share: stages with their counts, the first difference, and
// the checks that every kernel gets.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/compare.hpp"
#include "verify/fenced_buffer.hpp"
#include "verify/verdict.hpp"

namespace kvproof::verify {

class case_checks {
 protected:
  // `result` is filled as the case goes on and must outlive this.
  explicit case_checks(case_result& result) : result_(result) {}

  void note_entry(std::string_view entry);  // a kernel is about to be launched

  // Each adds what it compared to the stage. False: a difference, which ends the case.
  bool note(const std::string& stage, const comparison& c, std::int64_t outputs = 0);
  // Integers or bit patterns that kernels only read.
  template <typename T>
  bool unchanged(const std::string& stage, const fenced_buffer& buffer, std::span<const axis> axes,
                 const std::vector<T>& expected) {
    comparison c = compare_exact<T>(buffer.name(), axes, expected, buffer.read<T>());
    if (c.mismatch) c.mismatch->first += ", which no kernel may write";
    return note(stage, c);
  }
  bool canaries_live(const std::string& stage, std::span<const fenced_buffer* const> buffers);

 private:
  case_result& result_;
};

// Plays a case and turns what came of it into its verdict, see run_case().
[[nodiscard]] case_result judge_case(const std::string& id,
                                     const std::function<void(case_result&)>& play);

}  // namespace kvproof::verify
