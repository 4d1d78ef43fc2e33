// Comparison of a device tensor with the reference, as bits. Two NaNs are equal whatever their
// payload; +0 and -0 differ. A mismatch is data, not an exception: where, what, how far, and what
// the pattern looks like.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvproof::verify {

// Row-major axes of a tensor, outermost first.
struct axis {
  std::string name;  // "sequence", "q_head", "channel"
  std::int64_t extent;
};

struct mismatch_report {
  std::int64_t count = 0;
  std::string first;    // "out[sequence=0, q_head=5, channel=17]: expected 0x3f800000 (1), got ..."
  std::string pattern;  // a guess: "only channel = 7 mod 8"; empty when nothing stands out
};

struct comparison {
  std::int64_t compared = 0;
  std::optional<mismatch_report> mismatch;
};

// fp32 tensors of equal shape, given as bit patterns.
[[nodiscard]] comparison compare_floats(const std::string& name, std::span<const axis> axes,
                                        std::span<const std::uint32_t> expected,
                                        std::span<const std::uint32_t> actual);

// Integers or bit patterns of equal shape, for T = std::int32_t, std::uint32_t and std::uint16_t.
template <typename T>
[[nodiscard]] comparison compare_exact(const std::string& name, std::span<const axis> axes,
                                       std::span<const T> expected, std::span<const T> actual);

// Distance in representable numbers between two finite fp32 bit patterns; +0 and -0 are one apart.
[[nodiscard]] std::int64_t ulp_distance(std::uint32_t a, std::uint32_t b);

// What the mismatching coordinates have in common: a single value of an axis, one residue mod 2, 4,
// 8, 16 or 32, the last tile of an axis, every element, or only the sign of zero. `coordinates`
// holds axes.size() numbers for each mismatch.
[[nodiscard]] std::string guess_pattern(std::span<const axis> axes,
                                        std::span<const std::int64_t> coordinates);

}  // namespace kvproof::verify
