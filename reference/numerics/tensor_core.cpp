// The scalar tensor-core model, in integers: independent of rounding mode, FTZ and compiler flags.
#include "reference/numerics/tensor_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "reference/numerics/tensor_core_group.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

enum class number_class : std::uint8_t { zero, finite, infinite, nan };

struct decoded {
  std::int64_t
      significand;  // with the hidden bit; value = significand * 2^(exponent - fraction bits)
  int exponent;     // a subnormal has the least exponent of its format
  number_class kind;
  bool negative;
};

constexpr decoded decode(std::uint32_t bits, int fraction_bits, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
  const std::uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const bool negative = (bits >> (fraction_bits + exponent_bits) & 1u) != 0;
  if (exponent == (1u << exponent_bits) - 1) {
    return {0, 0, fraction != 0 ? number_class::nan : number_class::infinite, negative};
  }
  const std::int64_t hidden = exponent != 0 ? std::int64_t{1} << fraction_bits : 0;
  const std::int64_t significand = hidden | fraction;
  return {significand, (exponent != 0 ? static_cast<int>(exponent) : 1) - bias,
          significand != 0 ? number_class::finite : number_class::zero, negative};
}

// sum * 2^unit_exponent as fp32, truncated; overflow gives infinity, a result of zero is +0.
float truncate_to_float(std::int64_t sum, int unit_exponent) {
  if (sum == 0) return 0.0f;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const std::uint64_t magnitude =
      sum < 0 ? -static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  const int exponent = 63 - std::countl_zero(magnitude) + unit_exponent;
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7f800000u);
  const int last_bit = std::max(exponent, -126) - 23;  // weight of the last kept bit
  const int shift = last_bit - unit_exponent;
  const std::uint64_t kept = shift <= 0 ? magnitude << -shift : shift > 63 ? 0 : magnitude >> shift;
  if (exponent < -126) {
    return kept == 0 ? 0.0f : std::bit_cast<float>(sign | static_cast<std::uint32_t>(kept));
  }
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(exponent + 127) << 23 |
                              (static_cast<std::uint32_t>(kept) & 0x7fffffu));
}

constexpr float canonical_nan = std::bit_cast<float>(0x7fffffffu);

}  // namespace

float fused_group(const std::uint16_t* a, std::int64_t stride_a, const std::uint16_t* b,
                  std::int64_t stride_b, float c, operand_type type,
                  const tensor_core_rules& rules) {
  const int fraction_bits = type == operand_type::fp16 ? 10 : 7;
  const int exponent_bits = type == operand_type::fp16 ? 5 : 8;
  const decoded addend = decode(std::bit_cast<std::uint32_t>(c), 23, 8);
  bool nan = addend.kind == number_class::nan;
  bool plus_infinity = addend.kind == number_class::infinite && !addend.negative;
  bool minus_infinity = addend.kind == number_class::infinite && addend.negative;
  int largest = rules.exponent_floor;
  if (addend.kind == number_class::finite) largest = std::max(largest, addend.exponent);

  struct product {
    std::int64_t significand;
    int exponent;
  };
  std::array<product, 16> products{};  // significand 0: takes no part
  for (int i = 0; i < rules.group; ++i) {
    const decoded x = decode(a[i * stride_a], fraction_bits, exponent_bits);
    const decoded y = decode(b[i * stride_b], fraction_bits, exponent_bits);
    if (x.kind == number_class::nan || y.kind == number_class::nan) {
      nan = true;
    } else if (x.kind == number_class::infinite || y.kind == number_class::infinite) {
      if (x.kind == number_class::zero || y.kind == number_class::zero) {
        nan = true;
      } else {
        (x.negative != y.negative ? minus_infinity : plus_infinity) = true;
      }
    } else if (x.kind == number_class::finite && y.kind == number_class::finite) {
      const std::int64_t significand = x.significand * y.significand;
      products[i] = {x.negative != y.negative ? -significand : significand,
                     x.exponent + y.exponent};
      largest = std::max(largest, products[i].exponent);
    }
  }
  if (nan || (plus_infinity && minus_infinity)) return canonical_nan;
  if (plus_infinity) return std::bit_cast<float>(0x7f800000u);
  if (minus_infinity) return std::bit_cast<float>(0xff800000u);

  // Truncates the magnitude of significand * 2^(exponent - point) to F fraction bits at `largest`.
  const auto align = [&](std::int64_t significand, int point, int exponent) -> std::int64_t {
    const int shift = rules.fraction_bits - point - (largest - exponent);
    if (shift >= 0) return significand * (std::int64_t{1} << shift);
    if (shift < -62) return 0;
    return significand < 0 ? -(-significand >> -shift) : significand >> -shift;
  };
  std::int64_t sum = 0;
  if (addend.kind == number_class::finite) {
    sum = align(addend.negative ? -addend.significand : addend.significand, 23, addend.exponent);
  }
  for (int i = 0; i < rules.group; ++i) {
    if (products[i].significand != 0) {
      sum += align(products[i].significand, 2 * fraction_bits, products[i].exponent);
    }
  }
  return truncate_to_float(sum, largest - rules.fraction_bits);
}

float mma_dot(std::span<const std::uint16_t> a, std::span<const std::uint16_t> b, float c,
              architecture arch, operand_type type) {
  if (a.size() != b.size() || a.size() % 8 != 0) {
    throw spec::contract_error(
        fmt::format("mma_dot: a has {} elements and b {}; give the same number, a multiple of 8",
                    a.size(), b.size()));
  }
  tensor_core_rules step = rules_of(arch);
  const std::size_t group = static_cast<std::size_t>(step.group);
  for (std::size_t k = 0; k < a.size(); k += group) {
    step.group = static_cast<int>(std::min(group, a.size() - k));
    c = fused_group(a.data() + k, 1, b.data() + k, 1, c, type, step);
  }
  return c;
}

void mma_matrix_scalar(std::span<float> c, std::span<const std::uint16_t> a,
                       std::span<const std::uint16_t> b, architecture arch, operand_type type) {
  const tensor_core_rules rules = rules_of(arch);
  const std::int64_t rows = static_cast<std::int64_t>(c.size()) / 8;
  const std::int64_t depth = static_cast<std::int64_t>(b.size()) / 8;
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < 8; ++n) {
      for (std::int64_t k = 0; k < depth; k += rules.group) {
        c[m * 8 + n] =
            fused_group(&a[m * depth + k], 1, &b[k * 8 + n], 8, c[m * 8 + n], type, rules);
      }
    }
  }
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

std::int64_t mma_matrix(std::span<float> c, std::span<const std::uint16_t> a,
                        std::span<const std::uint16_t> b, architecture arch, operand_type type) {
  const std::size_t rows = c.size() / 8, depth = b.size() / 8;
  if (c.size() % 8 != 0 || b.size() % 8 != 0 || depth % 16 != 0 || a.size() != rows * depth) {
    throw spec::contract_error(
        fmt::format("mma_matrix: c has {} elements, a {} and b {}; they must be [M][8], [M][K] and "
                    "[K][8] with K a multiple of 16",
                    c.size(), a.size(), b.size()));
  }
  if (depth == 0) return 0;  // no products: c stays
  if (has_avx2()) return mma_matrix_avx2(c, a, b, arch, type);
  mma_matrix_scalar(c, a, b, arch, type);
  return 0;
}

}  // namespace kvproof::reference
