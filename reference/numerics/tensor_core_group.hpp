// Inside the tensor-core model: one group of products and its addend. Shared by the scalar and the
// AVX2 form.
#pragma once

#include <cstdint>

#include "reference/numerics/tensor_core.hpp"

namespace kvproof::reference {

struct tensor_core_rules {
  int group;           // products summed at once
  int fraction_bits;   // F, kept below the largest exponent
  int exponent_floor;  // lower clamp of the largest exponent
};

[[nodiscard]] constexpr tensor_core_rules rules_of(architecture arch) {
  return arch == architecture::sm_90 ? tensor_core_rules{16, 25, -133}
                                     : tensor_core_rules{8, 24, -132};
}

// d = c + sum over i < rules.group of a[i * stride_a] * b[i * stride_b].
[[nodiscard]] float fused_group(const std::uint16_t* a, std::int64_t stride_a,
                                const std::uint16_t* b, std::int64_t stride_b, float c,
                                operand_type type, const tensor_core_rules& rules);

// The two forms of mma_matrix; shapes are already checked. The first runs anywhere, the second
// needs AVX2, FMA and F16C (tensor_core_avx2.cpp).
void mma_matrix_scalar(std::span<float> c, std::span<const std::uint16_t> a,
                       std::span<const std::uint16_t> b, architecture arch, operand_type type);
[[nodiscard]] bool has_avx2();
std::int64_t mma_matrix_avx2(std::span<float> c, std::span<const std::uint16_t> a,
                             std::span<const std::uint16_t> b, architecture arch,
                             operand_type type);

}  // namespace kvproof::reference
