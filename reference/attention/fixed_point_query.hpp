// A query row in 16-bit fixed point, as keys of 8 and 4 bits meet it: decode_attention.md
// section 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/formats/page_codec.hpp"

namespace kvproof::reference {

struct fixed_point_query {
  float qm;                      // the largest magnitude of the row
  float r;                       // elements are multiplied by it and rounded
  float unit;                    // an element is nearly qi * unit
  std::vector<std::int16_t> qi;  // [head_dim], -32639 .. 32639
};

inline constexpr int fixed_point_max = 32639;  // 127 * 256 + 127: two signed 8-bit limbs

// The row must be finite.
[[nodiscard]] fixed_point_query to_fixed_point(std::span<const half_bits> q);

// Exact for up to 257 products of a code (0 .. 255) and an element of qi.
[[nodiscard]] std::int32_t integer_dot(std::span<const std::int16_t> codes,
                                       std::span<const std::int16_t> qi);

}  // namespace kvproof::reference
