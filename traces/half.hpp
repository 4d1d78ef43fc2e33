// IEEE binary16 bits from and to double, by integer code. Used for statistics and for synthetic
// data; recorded bits are never converted.
#pragma once

#include "traces/attention_trace.hpp"

namespace kvproof::traces {

inline constexpr half_bits half_exponent_mask = 0x7c00;

[[nodiscard]] constexpr bool is_finite(half_bits bits) {
  return (bits & half_exponent_mask) != half_exponent_mask;
}

[[nodiscard]] double half_to_double(half_bits bits);  // exact

// To nearest, ties to even; beyond the range to +-65504, never to infinity. `x` is not NaN.
[[nodiscard]] half_bits finite_half(double x);

}  // namespace kvproof::traces
