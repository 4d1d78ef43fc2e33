// The tensor-core model for 8 columns at once. fp16 x fp16 (22 bits) and bf16 x bf16 (16 bits) are
// exact in fp32, and so is 2^ea * 2^eb. Per group of products:
//   P   = max over k of 2^ea * 2^eb, and 2^ec     a power of two, as a float
//   sum = sum over k of cvtt(a * b * 2^F / P)     cvttps IS the truncation of the alignment
//   d   = float(sum), truncated (MXCSR rounding toward zero), * P * 2^-F
// Outputs where a step could leave the exact range (P outside 2^+-100, int32 overflow, operands
// that are not finite, products of powers of two that could underflow) are left to the scalar
// model.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reference/numerics/tensor_core_group.hpp"

namespace kvproof::reference {
namespace {

// Operands as two floats each: the value, and the power of two of its exponent (0 for a zero; a
// subnormal number has the least exponent of its type).
struct widened {
  std::vector<float> value, power;
  bool finite = true;
  float least_power = 0;  // at most the smallest nonzero power

  void resize(std::size_t count) {
    value.resize(count);
    power.resize(count);
  }
};

// x.size() is a multiple of 8. Exact in any rounding mode: every 16-bit number has an fp32 value.
template <operand_type Type>
void widen(std::span<const std::uint16_t> x, widened& out) {
  const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
  const __m256 least = _mm256_set1_ps(Type == operand_type::fp16 ? 0x1p-14f : 0x1p-126f);
  __m256 largest_power = _mm256_setzero_ps();
  __m256 smallest_power = infinity;
  for (std::size_t i = 0; i < x.size(); i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&x[i]));
    const __m256 value =
        Type == operand_type::fp16
            ? _mm256_cvtph_ps(bits)
            : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    const __m256 nonzero_power = _mm256_max_ps(_mm256_and_ps(value, infinity), least);
    const __m256 is_zero = _mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_EQ_OQ);
    const __m256 power = _mm256_andnot_ps(is_zero, nonzero_power);
    _mm256_storeu_ps(&out.value[i], value);
    _mm256_storeu_ps(&out.power[i], power);
    largest_power = _mm256_max_ps(largest_power, power);
    smallest_power =
        _mm256_min_ps(smallest_power, _mm256_or_ps(power, _mm256_and_ps(is_zero, infinity)));
  }
  alignas(32) float smallest[8];
  _mm256_store_ps(smallest, smallest_power);
  out.finite = _mm256_movemask_ps(_mm256_cmp_ps(largest_power, infinity, _CMP_EQ_OQ)) == 0;
  out.least_power = *std::min_element(smallest, smallest + 8);
}

// Rounding toward zero, nothing flushed, for the life of the object, whatever the caller's mode.
// The function that uses it is not inlined, and the asm statements are barriers, so that no other
// arithmetic runs under this mode.
class round_toward_zero {
 public:
  round_toward_zero() {
    asm volatile("stmxcsr %0" : "=m"(saved_)::"memory");
    const unsigned mode = 0x7f80;  // all exceptions masked, RC = toward zero
    asm volatile("ldmxcsr %0" ::"m"(mode) : "memory");
  }
  ~round_toward_zero() { asm volatile("ldmxcsr %0" ::"m"(saved_) : "memory"); }
  round_toward_zero(const round_toward_zero&) = delete;
  round_toward_zero& operator=(const round_toward_zero&) = delete;

 private:
  unsigned saved_ = 0;
};

struct group_result {
  __m256 sums;   // of 8 columns
  int is_exact;  // one bit a column
};

// One group of products of a row with 8 columns. `zero_is_exact` (a mask): P == 0 means that all
// terms are zero, because no product of powers of two can have underflowed.
template <int Group, int FractionBits>
inline group_result multiply_group(const float* value_a, const float* power_a, const float* value_b,
                                   const float* power_b, __m256 c, __m256 zero_is_exact) {
  const __m256i exponent_mask = _mm256_set1_epi32(0x7f800000);
  const __m256 zero = _mm256_setzero_ps();
  const __m256 low = _mm256_set1_ps(0x1p-100f), high = _mm256_set1_ps(0x1p100f);
  __m256 p0 = _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(c), exponent_mask));
  __m256 p1 = zero;
#pragma GCC unroll 16
  for (int k = 0; k < Group; k += 2) {
    const __m256 e0 =
        _mm256_mul_ps(_mm256_broadcast_ss(power_a + k), _mm256_loadu_ps(power_b + k * 8));
    const __m256 e1 =
        _mm256_mul_ps(_mm256_broadcast_ss(power_a + k + 1), _mm256_loadu_ps(power_b + k * 8 + 8));
    p0 = _mm256_max_ps(p0, e0);
    p1 = _mm256_max_ps(p1, e1);
  }
  __m256 p = _mm256_max_ps(p0, p1);
  const __m256 all_zero = _mm256_cmp_ps(p, zero, _CMP_EQ_OQ);
  const __m256 in_range =
      _mm256_and_ps(_mm256_cmp_ps(p, low, _CMP_GE_OQ), _mm256_cmp_ps(p, high, _CMP_LE_OQ));
  const __m256 zero_ok =
      _mm256_and_ps(_mm256_and_ps(all_zero, zero_is_exact), _mm256_cmp_ps(c, zero, _CMP_EQ_OQ));
  p = _mm256_blendv_ps(p, low, all_zero);
  const __m256 scale = _mm256_castsi256_ps(_mm256_sub_epi32(
      _mm256_set1_epi32((254 + FractionBits) << 23), _mm256_castps_si256(p)));  // 2^F / P
  __m256i s0 = _mm256_cvttps_epi32(_mm256_mul_ps(c, scale));
  __m256i s1 = _mm256_setzero_si256();
#pragma GCC unroll 16
  for (int k = 0; k < Group; k += 2) {
    const __m256 x0 =
        _mm256_mul_ps(_mm256_broadcast_ss(value_a + k), _mm256_loadu_ps(value_b + k * 8));
    const __m256 x1 =
        _mm256_mul_ps(_mm256_broadcast_ss(value_a + k + 1), _mm256_loadu_ps(value_b + k * 8 + 8));
    s0 = _mm256_add_epi32(s0, _mm256_cvttps_epi32(_mm256_mul_ps(x0, scale)));
    s1 = _mm256_add_epi32(s1, _mm256_cvttps_epi32(_mm256_mul_ps(x1, scale)));
  }
  const __m256i sum = _mm256_add_epi32(s0, s1);  // s0 and s1 stay below 2^31
  const __m256i overflow = _mm256_and_si256(_mm256_xor_si256(sum, s0), _mm256_xor_si256(sum, s1));
  const __m256 unit = _mm256_castsi256_ps(
      _mm256_sub_epi32(_mm256_castps_si256(p), _mm256_set1_epi32(FractionBits << 23)));  // P * 2^-F
  const __m256 exact =
      _mm256_andnot_ps(_mm256_castsi256_ps(overflow), _mm256_or_ps(zero_ok, in_range));
  return {_mm256_mul_ps(_mm256_cvtepi32_ps(sum), unit), _mm256_movemask_ps(exact)};
}

template <operand_type Type, int Group, int FractionBits>
__attribute__((noinline)) std::int64_t multiply(std::span<float> c,
                                                std::span<const std::uint16_t> a,
                                                std::span<const std::uint16_t> b,
                                                const tensor_core_rules& rules) {
  thread_local widened row_of_a, all_of_b;
  const std::size_t rows = c.size() / 8, depth = b.size() / 8;
  const round_toward_zero mode;
  row_of_a.resize(depth);
  all_of_b.resize(b.size());
  widen<Type>(b, all_of_b);
  std::int64_t scalar_steps = 0;
  for (std::size_t m = 0; m < rows; ++m) {
    widen<Type>(a.subspan(m * depth, depth), row_of_a);
    const bool finite = row_of_a.finite && all_of_b.finite;
    const __m256 zero_is_exact = _mm256_castsi256_ps(
        _mm256_set1_epi32(row_of_a.least_power * all_of_b.least_power >= 0x1p-126f ? -1 : 0));
    __m256 acc = _mm256_loadu_ps(&c[m * 8]);
    for (std::size_t k = 0; k < depth; k += Group) {
      const group_result step = multiply_group<Group, FractionBits>(
          &row_of_a.value[k], &row_of_a.power[k], &all_of_b.value[k * 8], &all_of_b.power[k * 8],
          acc, zero_is_exact);
      const int exact = finite ? step.is_exact : 0;
      if (exact == 0xff) {
        acc = step.sums;
        continue;
      }
      alignas(32) float before[8], after[8];
      _mm256_store_ps(before, acc);
      _mm256_store_ps(after, step.sums);
      for (int n = 0; n < 8; ++n) {
        if ((exact >> n & 1) != 0) continue;
        after[n] = fused_group(&a[m * depth + k], 1, &b[k * 8 + n], 8, before[n], Type, rules);
        ++scalar_steps;
      }
      acc = _mm256_load_ps(after);
    }
    _mm256_storeu_ps(&c[m * 8], acc);
  }
  return scalar_steps;
}

}  // namespace

std::int64_t mma_matrix_avx2(std::span<float> c, std::span<const std::uint16_t> a,
                             std::span<const std::uint16_t> b, architecture arch,
                             operand_type type) {
  const tensor_core_rules rules = rules_of(arch);
  if (arch == architecture::sm_90) {
    return type == operand_type::fp16 ? multiply<operand_type::fp16, 16, 25>(c, a, b, rules)
                                      : multiply<operand_type::bf16, 16, 25>(c, a, b, rules);
  }
  return type == operand_type::fp16 ? multiply<operand_type::fp16, 8, 24>(c, a, b, rules)
                                    : multiply<operand_type::bf16, 8, 24>(c, a, b, rules);
}

}  // namespace kvproof::reference
