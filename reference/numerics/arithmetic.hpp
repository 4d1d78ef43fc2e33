// Single fp32 operations by name, so that every arithmetic step of the reference says what it
// rounds. All round to nearest even and keep subnormals, as the __f..._rn intrinsics of a GPU do.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <span>

namespace kvproof::reference {

static_assert(FLT_EVAL_METHOD == 0, "fp32 expressions must be evaluated in fp32");

[[nodiscard]] inline float add(float a, float b) { return a + b; }
[[nodiscard]] inline float sub(float a, float b) { return a - b; }
[[nodiscard]] inline float mul(float a, float b) { return a * b; }
[[nodiscard]] inline float div(float a, float b) { return a / b; }
[[nodiscard]] inline float fma(float a, float b, float c) { return std::fma(a, b, c); }

// The nearest integer, ties to even, of a number below 2^31 in magnitude.
[[nodiscard]] inline std::int32_t rne(float x) { return static_cast<std::int32_t>(std::lrint(x)); }

// PTX max.f32: +0 > -0; the other operand if one is NaN.
[[nodiscard]] inline float max_ordered(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// ((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7)): what every lane holds after an xor butterfly
// over 8 lanes.
[[nodiscard]] inline float butterfly_sum(std::span<const float, 8> v) {
  return add(add(add(v[0], v[1]), add(v[2], v[3])), add(add(v[4], v[5]), add(v[6], v[7])));
}

// True when the thread rounds to nearest even and flushes nothing: what all of the above assumes.
[[nodiscard]] bool fp_environment_is_clean();

}  // namespace kvproof::reference
