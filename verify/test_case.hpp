// A case: an id, and how its workload is built again from a seed alone (and, for trace cases, from
// the trace), which is what `kvproof repro` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "reference/spec/kv_format.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

struct test_case {
  std::string id;  // "decode/k8v4/d64_g3_sharp", "minikv-2bit/smollm2-135m-instruct/layer09"
  spec::format_id format;
  std::function<workload(std::uint64_t seed)> build;
  std::string rerun_options;  // what repro needs besides the seed: "--trace F.h5 --steps 32"
};

}  // namespace kvproof::verify
