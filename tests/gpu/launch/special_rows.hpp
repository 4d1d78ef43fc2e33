// Rows of fp16 that a quantizer can stumble over.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {

// Rows of every kind: normal, any finite pattern, constant, only -0, ranges too small for a scale,
// NaN, infinities, the widest range.
inline std::vector<half_bits> special_rows(seeded_values& random, std::int64_t num_rows,
                                           int head_dim) {
  std::vector<half_bits> x(static_cast<std::size_t>(num_rows * head_dim));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t kind = random.below(16);
    const half_bits constant = random.finite_half();
    for (int c = 0; c < head_dim; ++c) {
      half_bits& e = x[static_cast<std::size_t>(row * head_dim + c)];
      switch (kind) {
        case 0:
          e = random.finite_half();
          break;
        case 1:
          e = constant;
          break;
        case 2:
          e = 0x8000;
          break;
        case 3:
          e = static_cast<half_bits>(random.below(2) * 0x8000);
          break;
        case 4:
          e = static_cast<half_bits>(0x8000 * random.below(2) + random.below(40));
          break;
        case 5:
          e = random.below(2) != 0 ? 0x7bff : 0xfbff;
          break;
        default:
          e = random.normal_half();
          break;
      }
    }
    if (kind == 6) x[static_cast<std::size_t>(row * head_dim + random.below(head_dim))] = 0x7e01;
    if (kind == 7) x[static_cast<std::size_t>(row * head_dim + random.below(head_dim))] = 0xfc00;
  }
  // Tiles of 16 rows of one kind, so that the groups of int2_g16 keys are special too.
  for (std::int64_t row = 16; row + 16 <= num_rows; row += 48) {
    const std::int64_t kind = random.below(3);
    for (std::int64_t i = row * head_dim; i < (row + 16) * head_dim; ++i) {
      x[static_cast<std::size_t>(i)] =
          kind == 0 ? half_bits{0x8000}
                    : static_cast<half_bits>(kind == 1 ? random.below(3)
                                                       : 0x8000 * random.below(2) + 0x7bff);
    }
  }
  return x;
}

}  // namespace kvproof::tests
