// What all synthetic workloads have in common: shape, and keys and values drawn from a regime.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verify/synthetic_values.hpp"
#include "verify/workload.hpp"

namespace kvproof::verify {

inline constexpr int synthetic_kv_heads = 2;

struct drawn_options {
  spec::format_id format;
  int head_dim;
  int gqa_ratio;
  std::size_t batch;
  std::int64_t source_tokens;
  value_regime regime;
};

// Without events.
[[nodiscard]] workload drawn_workload(const drawn_options& o, std::uint64_t seed);

}  // namespace kvproof::verify
