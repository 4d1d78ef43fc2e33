// One output of mma.sync / wgmma with 16-bit inputs and an fp32 accumulator, d = c + sum a[k] *
// b[k]:
//   products are exact; with the addend they are aligned to the largest exponent (of a product: the
//   sum of the operands' exponents, not renormalised; zeros take no part), each magnitude is
//   truncated to F fraction bits below it, the integers are added exactly, and the sum is truncated
//   to fp32. sm_90: 16 products at once, F = 25.  sm_80: two groups of 8, F = 24, one after the
//   other.
// Equal to an H200 in 374 million outputs; sm_80 follows published recordings of an A100.
#pragma once

#include <cstdint>
#include <span>

#include "reference/numerics/architecture.hpp"

namespace kvproof::reference {

enum class operand_type : std::uint8_t { fp16, bf16 };

// a and b hold the same number of elements, a multiple of 8; k16 steps ascending, the result of one
// step is the addend of the next. NaN and inf - inf give 0x7fffffff. Throws contract_error on other
// sizes.
[[nodiscard]] float mma_dot(std::span<const std::uint16_t> a, std::span<const std::uint16_t> b,
                            float c, architecture arch, operand_type type = operand_type::fp16);

// The same for M x 8 outputs at once: c [M][8] += a [M][K] * b [K][8], all row-major, K a multiple
// of 16; throws contract_error otherwise. Bit-equal to mma_dot; uses AVX2 where the processor has
// it. Returns how many k16 steps of single outputs the vector code handed to the scalar model (0
// without AVX2).
std::int64_t mma_matrix(std::span<float> c, std::span<const std::uint16_t> a,
                        std::span<const std::uint16_t> b, architecture arch,
                        operand_type type = operand_type::fp16);

}  // namespace kvproof::reference
