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

constexpr int rows_at_once = 4;  // independent chains hide the latency of one

// One row of A: its operands, and whether P == 0 means that all terms are zero (a mask), because no
// product of powers of two can have underflowed.
struct row_of_a {
  const float* value;
  const float* power;
  __m256 zero_is_exact;
  bool finite;
};

template <int Rows>
struct group_result {
  __m256 sums[Rows];   // of 8 columns
  int is_exact[Rows];  // one bit a column
};

// The group of products that starts at k, of some rows with 8 columns; b is at its row k.
template <int Rows, int Group, int FractionBits>
inline group_result<Rows> multiply_group(const row_of_a* rows, std::size_t k, const float* value_b,
                                         const float* power_b, const __m256* c) {
  const __m256i exponent_mask = _mm256_set1_epi32(0x7f800000);
  const __m256 zero = _mm256_setzero_ps();
  const __m256 low = _mm256_set1_ps(0x1p-100f), high = _mm256_set1_ps(0x1p100f);
  __m256 p[Rows];
  for (int r = 0; r < Rows; ++r) p[r] = zero;
#pragma GCC unroll 16
  for (int i = 0; i < Group; ++i) {
    const __m256 power = _mm256_loadu_ps(power_b + i * 8);
    for (int r = 0; r < Rows; ++r) {
      const __m256 e = _mm256_mul_ps(_mm256_broadcast_ss(rows[r].power + k + i), power);
      p[r] = _mm256_max_ps(p[r], e);
    }
  }
  __m256 scale[Rows], usable[Rows];
  for (int r = 0; r < Rows; ++r) {
    p[r] = _mm256_max_ps(
        p[r], _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(c[r]), exponent_mask)));
    const __m256 all_zero = _mm256_cmp_ps(p[r], zero, _CMP_EQ_OQ);
    const __m256 in_range =
        _mm256_and_ps(_mm256_cmp_ps(p[r], low, _CMP_GE_OQ), _mm256_cmp_ps(p[r], high, _CMP_LE_OQ));
    const __m256 zero_ok = _mm256_and_ps(_mm256_and_ps(all_zero, rows[r].zero_is_exact),
                                         _mm256_cmp_ps(c[r], zero, _CMP_EQ_OQ));
    usable[r] = _mm256_or_ps(zero_ok, in_range);
    p[r] = _mm256_blendv_ps(p[r], low, all_zero);
    scale[r] = _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32((254 + FractionBits) << 23),
                                                    _mm256_castps_si256(p[r])));  // 2^F / P
  }
  __m256i s0[Rows], s1[Rows];  // each stays below 2^31
  for (int r = 0; r < Rows; ++r) {
    s0[r] = _mm256_cvttps_epi32(_mm256_mul_ps(c[r], scale[r]));
    s1[r] = _mm256_setzero_si256();
  }
#pragma GCC unroll 16
  for (int i = 0; i < Group; ++i) {
    const __m256 value = _mm256_loadu_ps(value_b + i * 8);
    for (int r = 0; r < Rows; ++r) {
      const __m256 x = _mm256_mul_ps(_mm256_broadcast_ss(rows[r].value + k + i), value);
      __m256i& s = i % 2 == 0 ? s0[r] : s1[r];
      s = _mm256_add_epi32(s, _mm256_cvttps_epi32(_mm256_mul_ps(x, scale[r])));
    }
  }
  group_result<Rows> result;
  for (int r = 0; r < Rows; ++r) {
    const __m256i sum = _mm256_add_epi32(s0[r], s1[r]);
    const __m256i overflow =
        _mm256_and_si256(_mm256_xor_si256(sum, s0[r]), _mm256_xor_si256(sum, s1[r]));
    const __m256 unit = _mm256_castsi256_ps(_mm256_sub_epi32(
        _mm256_castps_si256(p[r]), _mm256_set1_epi32(FractionBits << 23)));  // P * 2^-F
    result.sums[r] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), unit);
    result.is_exact[r] =
        _mm256_movemask_ps(_mm256_andnot_ps(_mm256_castsi256_ps(overflow), usable[r]));
  }
  return result;
}

// All groups of `Rows` rows; a and c start at the first of them. Returns the steps of single
// outputs that the scalar model did.
template <operand_type Type, int Rows, int Group, int FractionBits>
inline std::int64_t multiply_rows(float* c, const std::uint16_t* a,
                                  std::span<const std::uint16_t> b, const row_of_a* rows,
                                  const widened& wide_b, const tensor_core_rules& rules) {
  const std::size_t depth = b.size() / 8;
  std::int64_t scalar_steps = 0;
  __m256 acc[Rows];
  for (int r = 0; r < Rows; ++r) acc[r] = _mm256_loadu_ps(c + r * 8);
  for (std::size_t k = 0; k < depth; k += Group) {
    const auto step = multiply_group<Rows, Group, FractionBits>(rows, k, &wide_b.value[k * 8],
                                                                &wide_b.power[k * 8], acc);
    for (int r = 0; r < Rows; ++r) {
      const int exact = rows[r].finite ? step.is_exact[r] : 0;
      if (exact == 0xff) {
        acc[r] = step.sums[r];
        continue;
      }
      alignas(32) float before[8], after[8];
      _mm256_store_ps(before, acc[r]);
      _mm256_store_ps(after, step.sums[r]);
      for (int n = 0; n < 8; ++n) {
        if ((exact >> n & 1) != 0) continue;
        after[n] = fused_group(a + r * depth + k, 1, &b[k * 8 + n], 8, before[n], Type, rules);
        ++scalar_steps;
      }
      acc[r] = _mm256_load_ps(after);
    }
  }
  for (int r = 0; r < Rows; ++r) _mm256_storeu_ps(c + r * 8, acc[r]);
  return scalar_steps;
}

template <operand_type Type, int Group, int FractionBits>
__attribute__((noinline)) std::int64_t multiply(std::span<float> c,
                                                std::span<const std::uint16_t> a,
                                                std::span<const std::uint16_t> b,
                                                const tensor_core_rules& rules) {
  thread_local widened wide_a[rows_at_once], wide_b;
  const std::size_t num_rows = c.size() / 8, depth = b.size() / 8;
  const round_toward_zero mode;
  for (widened& row : wide_a) row.resize(depth);
  wide_b.resize(b.size());
  widen<Type>(b, wide_b);
  std::int64_t scalar_steps = 0;
  for (std::size_t m = 0; m < num_rows;) {
    const int count = num_rows - m >= rows_at_once ? rows_at_once : 1;
    row_of_a rows[rows_at_once];
    for (int r = 0; r < count; ++r) {
      widened& row = wide_a[r];
      widen<Type>(a.subspan((m + r) * depth, depth), row);
      const bool zero_is_exact = row.least_power * wide_b.least_power >= 0x1p-126f;
      rows[r] = {row.value.data(), row.power.data(),
                 _mm256_castsi256_ps(_mm256_set1_epi32(zero_is_exact ? -1 : 0)),
                 row.finite && wide_b.finite};
    }
    scalar_steps += count == 1 ? multiply_rows<Type, 1, Group, FractionBits>(
                                     &c[m * 8], &a[m * depth], b, rows, wide_b, rules)
                               : multiply_rows<Type, rows_at_once, Group, FractionBits>(
                                     &c[m * 8], &a[m * depth], b, rows, wide_b, rules);
    m += count;
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
