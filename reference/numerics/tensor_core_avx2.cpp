// The tensor-core model for 8 columns at once. fp16 x fp16 (22 bits) and bf16 x bf16 (16 bits) are
// exact in fp32, and so is 2^ea * 2^eb. Per group of products:
//   P    = max over k of 2^ea * 2^eb, and 2^ec                a power of two, as a float
//   sum  = sum over k of cvtt(a * b * 2^F / P)                cvttps IS the truncation of the
//   alignment d    = float(sum) truncated (MXCSR rounding toward zero) * P * 2^-F
// Columns where a step could leave the exact range (P outside 2^+-100, int32 overflow, non-finite
// operands, products that could underflow) are recomputed by the scalar model.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core_group.hpp"

namespace kvproof::reference {
namespace {

// An operand as two floats: its value and the power of two of its exponent (0 for a zero).
struct prepared_value {
  float value;
  float power;
  std::int16_t exponent;  // of a nonzero number; 0x7fff: not finite
};

prepared_value prepare(std::uint16_t bits, operand_type type) {
  const int fraction_bits = type == operand_type::fp16 ? 10 : 7;
  const int exponent_mask = type == operand_type::fp16 ? 0x1f : 0xff;
  const int bias = type == operand_type::fp16 ? 15 : 127;
  const int field = bits >> fraction_bits & exponent_mask;
  if (field == exponent_mask) return {0, 0, 0x7fff};
  const float value = type == operand_type::fp16 ? half_to_float(bits) : bfloat16_to_float(bits);
  if (value == 0) return {0, 0, 0x7ffe};
  const int exponent = (field != 0 ? field : 1) - bias;
  return {value, std::ldexp(1.0f, exponent), static_cast<std::int16_t>(exponent)};
}

const std::vector<prepared_value>& table_of(operand_type type) {
  const auto build = [](operand_type t) {
    std::vector<prepared_value> table(1 << 16);
    for (std::uint32_t i = 0; i < table.size(); ++i)
      table[i] = prepare(static_cast<std::uint16_t>(i), t);
    return table;
  };
  static const std::vector<prepared_value> fp16 = build(operand_type::fp16);
  static const std::vector<prepared_value> bf16 = build(operand_type::bf16);
  return type == operand_type::fp16 ? fp16 : bf16;
}

struct prepared_operand {
  std::vector<float> value, power;
  bool finite = true;
  int least_exponent = 127;  // of a nonzero element
};

void prepare(std::span<const std::uint16_t> x, operand_type type, prepared_operand& out) {
  const std::vector<prepared_value>& table = table_of(type);
  out.value.resize(x.size());
  out.power.resize(x.size());
  out.finite = true;
  out.least_exponent = 127;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const prepared_value& p = table[x[i]];
    out.value[i] = p.value;
    out.power[i] = p.power;
    if (p.exponent == 0x7fff) {
      out.finite = false;
    } else if (p.exponent < out.least_exponent) {
      out.least_exponent = p.exponent;
    }
  }
}

// Sets the rounding mode of the thread to "toward zero" for the life of the object. The functions
// that use it are not inlined, and the asm statements are barriers, so no other arithmetic runs
// under this mode.
class round_toward_zero {
 public:
  round_toward_zero() {
    asm volatile("stmxcsr %0" : "=m"(saved_)::"memory");
    const unsigned mode = (saved_ & ~0x6000u) | 0x6000u;
    asm volatile("ldmxcsr %0" ::"m"(mode) : "memory");
  }
  ~round_toward_zero() { asm volatile("ldmxcsr %0" ::"m"(saved_) : "memory"); }
  round_toward_zero(const round_toward_zero&) = delete;
  round_toward_zero& operator=(const round_toward_zero&) = delete;

 private:
  unsigned saved_ = 0;
};

template <int Group, int FractionBits>
__attribute__((noinline)) std::int64_t multiply(std::span<float> c,
                                                std::span<const std::uint16_t> raw_a,
                                                std::span<const std::uint16_t> raw_b,
                                                const prepared_operand& a,
                                                const prepared_operand& b, operand_type type,
                                                const tensor_core_rules& rules) {
  std::int64_t scalar_steps = 0;
  const std::int64_t rows = static_cast<std::int64_t>(c.size()) / 8;
  const std::int64_t depth = static_cast<std::int64_t>(raw_b.size()) / 8;
  const round_toward_zero mode;
  const __m256 low = _mm256_set1_ps(0x1p-100f), high = _mm256_set1_ps(0x1p100f);
  const __m256i exponent_mask = _mm256_set1_epi32(0x7f800000);
  const __m256i up = _mm256_set1_epi32((254 + FractionBits) << 23);
  const __m256i down = _mm256_set1_epi32(FractionBits << 23);
  // P == 0 means "all terms are zero" only if no product of powers of two can underflow.
  const __m256 zero_is_exact =
      _mm256_castsi256_ps(_mm256_set1_epi32(a.least_exponent + b.least_exponent >= -126 ? -1 : 0));
  for (std::int64_t m = 0; m < rows; ++m) {
    __m256 acc = _mm256_loadu_ps(&c[m * 8]);
    for (std::int64_t g = 0; g < depth; g += Group) {
      const float* const power_a = &a.power[m * depth + g];
      const float* const value_a = &a.value[m * depth + g];
      const float* const power_b = &b.power[g * 8];
      const float* const value_b = &b.value[g * 8];
      __m256 p0 = _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(acc), exponent_mask));
      __m256 p1 = _mm256_setzero_ps();
#pragma GCC unroll 16
      for (int k = 0; k < Group; k += 2) {
        p0 = _mm256_max_ps(
            p0, _mm256_mul_ps(_mm256_broadcast_ss(power_a + k), _mm256_loadu_ps(power_b + k * 8)));
        p1 = _mm256_max_ps(p1, _mm256_mul_ps(_mm256_broadcast_ss(power_a + k + 1),
                                             _mm256_loadu_ps(power_b + k * 8 + 8)));
      }
      __m256 p = _mm256_max_ps(p0, p1);
      const __m256 all_zero = _mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_EQ_OQ);
      const __m256 in_range =
          _mm256_and_ps(_mm256_cmp_ps(p, low, _CMP_GE_OQ), _mm256_cmp_ps(p, high, _CMP_LE_OQ));
      const __m256 zero_ok = _mm256_and_ps(_mm256_and_ps(all_zero, zero_is_exact),
                                           _mm256_cmp_ps(acc, _mm256_setzero_ps(), _CMP_EQ_OQ));
      const __m256 ok = _mm256_or_ps(zero_ok, in_range);
      p = _mm256_blendv_ps(p, low, all_zero);
      const __m256 scale =
          _mm256_castsi256_ps(_mm256_sub_epi32(up, _mm256_castps_si256(p)));  // 2^F / P
      __m256i s0 = _mm256_cvttps_epi32(_mm256_mul_ps(acc, scale)), s1 = _mm256_setzero_si256();
#pragma GCC unroll 16
      for (int k = 0; k < Group; k += 2) {
        const __m256 x0 =
            _mm256_mul_ps(_mm256_broadcast_ss(value_a + k), _mm256_loadu_ps(value_b + k * 8));
        const __m256 x1 = _mm256_mul_ps(_mm256_broadcast_ss(value_a + k + 1),
                                        _mm256_loadu_ps(value_b + k * 8 + 8));
        s0 = _mm256_add_epi32(s0, _mm256_cvttps_epi32(_mm256_mul_ps(x0, scale)));
        s1 = _mm256_add_epi32(s1, _mm256_cvttps_epi32(_mm256_mul_ps(x1, scale)));
      }
      const __m256i s = _mm256_add_epi32(s0, s1);
      const __m256i overflow = _mm256_and_si256(_mm256_xor_si256(s, s0), _mm256_xor_si256(s, s1));
      const __m256 back =
          _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(p), down));  // P * 2^-F
      __m256 result = _mm256_mul_ps(_mm256_cvtepi32_ps(s), back);
      const int good = a.finite && b.finite ? _mm256_movemask_ps(ok) &
                                                  ~_mm256_movemask_ps(_mm256_castsi256_ps(overflow))
                                            : 0;
      if (__builtin_expect(good != 255, 0)) {
        alignas(32) float before[8], after[8];
        _mm256_store_ps(before, acc);
        _mm256_store_ps(after, result);
        for (int n = 0; n < 8; ++n) {
          if ((good >> n & 1) != 0) continue;
          after[n] =
              fused_group(&raw_a[m * depth + g], 1, &raw_b[g * 8 + n], 8, before[n], type, rules);
          ++scalar_steps;
        }
        result = _mm256_load_ps(after);
      }
      acc = result;
    }
    _mm256_storeu_ps(&c[m * 8], acc);
  }
  return scalar_steps;
}

}  // namespace

std::int64_t mma_matrix_avx2(std::span<float> c, std::span<const std::uint16_t> a,
                             std::span<const std::uint16_t> b, architecture arch,
                             operand_type type) {
  thread_local prepared_operand prepared_a, prepared_b;
  prepare(a, type, prepared_a);
  prepare(b, type, prepared_b);
  const tensor_core_rules rules = rules_of(arch);
  return arch == architecture::sm_90
             ? multiply<16, 25>(c, a, b, prepared_a, prepared_b, type, rules)
             : multiply<8, 24>(c, a, b, prepared_a, prepared_b, type, rules);
}

}  // namespace kvproof::reference
