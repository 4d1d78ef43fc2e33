// A case: an id, and how its workload is built again from a seed alone (and, for trace cases, from
// the trace), which is what `kvproof repro` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "reference/spec/kv_format.hpp"
#include "verify/score_update_workload.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

using case_data = std::variant<workload, score_update_workload>;

struct test_case {
  std::string id;  // "decode/k8v4/d64_g3_sharp", "minikv-2bit/smollm2-135m-instruct/layer09"
  std::optional<spec::format_id> format;  // empty: concerns no format
  std::function<case_data(std::uint64_t seed)> build;
  std::string rerun_options;  // what repro needs besides the seed: "--trace F.h5 --steps 32"
  bool tiers = false;         // of two tiers; `format` is the high one
};

}  // namespace kvproof::verify
