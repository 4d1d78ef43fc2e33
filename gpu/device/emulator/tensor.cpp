// mma.sync. On f16 and bf16 with f32 accumulators, with the arithmetic of sm_90: the exact products
// of one k-step and the accumulator are aligned to the largest exponent, their magnitudes truncated
// to 25 fraction bits, summed exactly and truncated once to f32. Zeros take no part, the exponent
// is at least -133, a zero sum is +0, NaN is 0x7fffffff. On 8-bit integers with s32 accumulators:
// exact, modulo 2^32. Built for plain x86-64 and for AVX2.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "gpu/device/emulator/float_formats.hpp"
#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

constexpr int sum_fraction_bits = 25;
constexpr int exponent_floor = -133;
constexpr int rows_m = 16;
constexpr int columns_n = 8;
constexpr int max_k = 16;

struct tile {
  alignas(32) float a[rows_m][max_k];
  alignas(32) float b[max_k][columns_n];
  alignas(32) float c[rows_m][columns_n];
};

// Exponent of a nonzero operand; subnormals of the 16-bit format keep its least exponent.
int exponent_of(float v, int least) {
  const int field = static_cast<int>(std::bit_cast<u32>(v) >> 23 & 0xff);
  return std::max(field - 127, least);
}
// |v| as an integer with `fraction` bits below 2^exponent_of(v).
s64 significand_of(float v, int least, int fraction) {
  return static_cast<s64>(std::ldexp(std::fabs(double{v}), fraction - exponent_of(v, least)));
}

// One output element, any inputs.
u32 dot_exact(const float* a, const float* b, int stride, float c, int k_count, int least) {
  bool nan = c != c;
  bool plus = std::isinf(c) && c > 0;
  bool minus = std::isinf(c) && c < 0;
  int e_max = exponent_floor;
  if (c != 0 && std::isfinite(c)) e_max = std::max(e_max, exponent_of(c, -126));
  for (int k = 0; k < k_count; ++k) {
    const float x = a[k];
    const float y = b[k * stride];
    const double p = double{x} * double{y};  // infinities and NaN; finite products are exact
    nan = nan || p != p;
    plus = plus || (std::isinf(p) && p > 0);
    minus = minus || (std::isinf(p) && p < 0);
    if (p != 0 && std::isfinite(p))
      e_max = std::max(e_max, exponent_of(x, least) + exponent_of(y, least));
  }
  if (nan || (plus && minus)) return 0x7fffffffu;
  if (plus || minus) return plus ? 0x7f800000u : 0xff800000u;
  const auto aligned = [&](s64 magnitude, int exponent, int fraction) -> s64 {
    const int shift = sum_fraction_bits - fraction - (e_max - exponent);
    if (shift >= 0) return magnitude << shift;
    return shift < -62 ? 0 : magnitude >> -shift;
  };
  s64 sum = 0;
  constexpr int fraction = 10;  // holds both f16 and bf16
  for (int k = 0; k < k_count; ++k) {
    const float x = a[k];
    const float y = b[k * stride];
    if (x == 0 || y == 0) continue;
    const s64 t = aligned(significand_of(x, least, fraction) * significand_of(y, least, fraction),
                          exponent_of(x, least) + exponent_of(y, least), 2 * fraction);
    sum += std::signbit(x) != std::signbit(y) ? -t : t;
  }
  if (c != 0) {
    const s64 t = aligned(significand_of(c, -126, 23), exponent_of(c, -126), 23);
    sum += std::signbit(c) ? -t : t;
  }
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  const u64 magnitude = static_cast<u64>(negative ? -sum : sum);
  const u32 bits = static_cast<u32>(
      encode(negative, magnitude, e_max - sum_fraction_bits, format_f32, rounding::rz));
  if ((bits & 0x7fffffffu) == 0) return 0;
  const int top = 63 - std::countl_zero(magnitude) + e_max - sum_fraction_bits;
  return top >= 128 ? (negative ? 0xff800000u : 0x7f800000u) : bits;
}

// Eight outputs of one row at a time. The baseline build lowers these to SSE2.
typedef float float8 __attribute__((vector_size(32)));
typedef s32 int8 __attribute__((vector_size(32)));

[[gnu::always_inline]] inline float8 load8(const float* p) {
  float8 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline bool any(const int8& v) {
#ifdef __AVX2__
  return _mm256_movemask_ps(reinterpret_cast<__m256>(v)) != 0;  // lanes are 0 or -1
#endif
  s32 bits = 0;
  for (int n = 0; n < columns_n; ++n) bits |= v[n];
  return bits != 0;
}

// Power of two below |v|, at least `least`, 0 for 0; exact for normal floats.
[[gnu::always_inline]] inline float8 power_below(float8 v, float least) {
  int8 bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  bits &= 0x7f800000;
  float8 p;
  __builtin_memcpy(&p, &bits, sizeof p);
  p = p > least ? p : float8{} + least;
  return v == 0.0f ? float8{} : p;
}

typedef float float4 __attribute__((vector_size(16)));
typedef double double4 __attribute__((vector_size(32)));
typedef s64 long4 __attribute__((vector_size(32)));

// The sums in the even (0) or odd (1) columns, 24 significant bits of each; the others are cut.
template <int First>
[[gnu::always_inline]] inline float4 cut_sum(const int8& low, const int8& high,
                                             const int8& addend) {
  const auto columns = [](const int8& v) [[gnu::always_inline]] {
    return __builtin_convertvector(
        __builtin_shufflevector(v, v, First, First + 2, First + 4, First + 6), double4);
  };
  const double4 sum = columns(low) + columns(high) + columns(addend);
  const long4 cut = reinterpret_cast<long4>(sum) & ~((s64{1} << 29) - 1);
  return __builtin_convertvector(reinterpret_cast<double4>(cut), float4);
}

// Float arithmetic that is exact under the guard: every power of two that occurs lies within
// 2^+-60, so no scaled product underflows above its truncation, and the sum of eight of them stays
// below 2^30. Returns false when the guard fails.
template <int Depth>
[[gnu::always_inline]] inline bool row_fast(const tile& t, const float8* b, const float8* b_power,
                                            int r, float least, float4 (&out)[2]) {
  alignas(32) float a_power[max_k];
#pragma GCC unroll 2
  for (int k = 0; k < Depth; k += 8) {
    const float8 p = power_below(load8(&t.a[r][k]), least);
    __builtin_memcpy(a_power + k, &p, sizeof p);
  }
  const float8 c = load8(t.c[r]);
  float8 top = power_below(c, 0x1p-126f);
#pragma GCC unroll 16
  for (int k = 0; k < Depth; ++k) {
    const float8 q = a_power[k] * b_power[k];
    top = q > top ? q : top;
  }
  const int8 empty = top == 0.0f;
  if (any(~empty & ((top < 0x1p-60f) | (top > 0x1p60f)))) return false;
  top = empty ? float8{} + 1.0f : top;
  const float8 scale = 0x1p25f / top;
  int8 low{};
  int8 high{};
#pragma GCC unroll 8
  for (int k = 0; k < Depth / 2; ++k) {
    low += __builtin_convertvector(t.a[r][k] * b[k] * scale, int8);
    high += __builtin_convertvector(t.a[r][k + Depth / 2] * b[k + Depth / 2] * scale, int8);
  }
  const int8 addend = __builtin_convertvector(c * scale, int8);
  const float4 even = cut_sum<0>(low, high, addend);
  const float4 odd = cut_sum<1>(low, high, addend);
  const float8 unit = top * 0x1p-25f;
  out[0] = even * __builtin_shufflevector(unit, unit, 0, 2, 4, 6);
  out[1] = odd * __builtin_shufflevector(unit, unit, 1, 3, 5, 7);
  return true;
}

// 64 operands of one register of all lanes: lane 4g + q holds elements 2q and 2q + 1 of row g of an
// 8x8 block.
template <bool Half>
void unpack_block(const u32* lanes, float* out) {
#ifdef __F16C__
  if constexpr (Half) {
    for (int g = 0; g < 8; ++g)
      _mm256_storeu_ps(
          out + 8 * g,
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes + 4 * g))));
    return;
  }
#endif
  for (int l = 0; l < 32; ++l) {
    for (int s = 0; s < 2; ++s) {
      const u16 bits = static_cast<u16>(lanes[l] >> (16 * s));
      out[2 * l + s] = Half ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
  }
}

// Blocks of A: rows 0-7 and 8-15 of columns 0-7, then of 8-15. Of B, transposed: k 0-7, then 8-15.
// C and D: rows g (two columns 2q, 2q + 1), then g + 8. o: d at 0, a at 4, b at 8, c at 10.
template <bool Half, int Depth>
void gather(warp& w, const instruction& i, tile& t) {
  alignas(32) float block[64];
  for (std::size_t e = 0; e < Depth / 4u; ++e) {
    unpack_block<Half>(row<u32>(w, i.o[4 + e]), block);
    for (std::size_t g = 0; g < 8; ++g)
      __builtin_memcpy(&t.a[g + 8 * (e & 1)][8 * (e >> 1)], block + 8 * g, 32);
  }
  for (std::size_t e = 0; e < Depth / 8u; ++e) {
    unpack_block<Half>(row<u32>(w, i.o[8 + e]), block);
    for (std::size_t k = 0; k < 8; ++k)
      for (std::size_t n = 0; n < 8; ++n) t.b[k + 8 * e][n] = block[8 * n + k];
  }
  for (std::size_t half = 0; half < 2; ++half) {
    const float* even = row<float>(w, i.o[10 + 2 * half]);
    const float* odd = row<float>(w, i.o[11 + 2 * half]);
    for (std::size_t g = 0; g < 8; ++g) {
      float4 x;
      float4 y;
      __builtin_memcpy(&x, even + 4 * g, sizeof x);
      __builtin_memcpy(&y, odd + 4 * g, sizeof y);
      const float8 both = __builtin_shufflevector(x, y, 0, 4, 1, 5, 2, 6, 3, 7);
      __builtin_memcpy(t.c[g + 8 * half], &both, sizeof both);
    }
  }
}

// Nonzero operands within 2^+-30.
[[gnu::always_inline]] inline int8 immoderate(float8 v) {
  const float8 m = v < 0.0f ? -v : v;
  return ~((v == 0.0f) | ((m >= 0x1p-30f) & (m <= 0x1p30f)));
}

void need_all_lanes(u32 m) {
  if (m != 0xffffffffu)
    throw fault{"mma runs without all 32 lanes", std::countr_zero(~m),
                "all 32 lanes must execute it together"};
}

template <bool Half, int Depth>
step mma(warp& w, const instruction& i, u32 m) {
  need_all_lanes(m);
  tile t;
  gather<Half, Depth>(w, i, t);
  constexpr int least = Half ? -14 : -126;
  constexpr float least_power = Half ? 0x1p-14f : 0x1p-126f;
  float8 b[max_k];
  float8 b_power[max_k];
  int8 odd{};
  for (int k = 0; k < Depth; ++k) {
    b[k] = load8(t.b[k]);
    b_power[k] = power_below(b[k], least_power);
    odd |= immoderate(b[k]);
  }
  for (int r = 0; r < rows_m; ++r)
    for (int k = 0; k < Depth; k += 8) odd |= immoderate(load8(&t.a[r][k]));
  const bool guard = !any(odd);
  for (int r = 0; r < rows_m; ++r) {
    float4 out[2];  // even and odd columns
    if (!guard || !row_fast<Depth>(t, b, b_power, r, least_power, out)) {
      for (int n = 0; n < columns_n; ++n)
        out[n & 1][n / 2] =
            std::bit_cast<float>(dot_exact(t.a[r], &t.b[0][n], columns_n, t.c[r][n], Depth, least));
    }
    for (std::size_t e = 0; e < 2; ++e)
      __builtin_memcpy(row<u32>(w, i.o[static_cast<std::size_t>(r / 8) * 2 + e]) + 4 * (r % 8),
                       &out[e], sizeof out[e]);
  }
  ++w.mmas;
  return step::next;
}

// a[0] * b[n][0] + a[1] * b[n][1] of eight columns n.
[[gnu::always_inline]] inline int8 dot_pairs(const s16 (&a)[2], const s16 (&b)[columns_n][2]) {
  int8 dot;
#ifdef __AVX2__
  s32 both;
  __builtin_memcpy(&both, a, sizeof both);
  dot = reinterpret_cast<int8>(
      _mm256_madd_epi16(_mm256_set1_epi32(both), *reinterpret_cast<const __m256i*>(b)));
#else
  for (int n = 0; n < columns_n; ++n) dot[n] = a[0] * b[n][0] + a[1] * b[n][1];
#endif
  return dot;
}

// A register of A or B over all lanes is eight rows of A, or columns of B, of 16 bytes: lane 4g + q
// holds bytes 4q .. 4q + 3 of row g. Registers of A: rows 0-7, 8-15 of k 0-15, then of 16-31. Of B:
// k 0-15, 16-31. C and D as above.
template <class A, class B>
step mma_bytes(warp& w, const instruction& i, u32 m) {
  need_all_lanes(m);
  // Two neighbours in k lie beside each other, as halves of a word.
  constexpr std::size_t pairs = 16;
  alignas(32) s16 a[rows_m][pairs][2];
  alignas(32) s16 b[pairs][columns_n][2];
  for (std::size_t e = 0; e < 4; ++e) {
    const A* lanes = row<A>(w, i.o[4 + e]);
    for (std::size_t g = 0; g < 8; ++g)
      for (std::size_t k = 0; k < 16; ++k)
        a[g + 8 * (e & 1)][8 * (e >> 1) + k / 2][k % 2] = lanes[16 * g + k];
  }
  for (std::size_t e = 0; e < 2; ++e) {
    const B* lanes = row<B>(w, i.o[8 + e]);
    for (std::size_t k = 0; k < 16; ++k)
      for (std::size_t n = 0; n < 8; ++n) b[8 * e + k / 2][n][k % 2] = lanes[16 * n + k];
  }
  u32 c[4][32];
  for (std::size_t e = 0; e < 4; ++e) __builtin_memcpy(c[e], row<u32>(w, i.o[10 + e]), sizeof c[e]);
  for (std::size_t r = 0; r < rows_m; ++r) {
    int8 sum{};  // at most 32 * 255 * 255
    for (std::size_t k = 0; k < pairs; ++k) sum += dot_pairs(a[r][k], b[k]);
    for (std::size_t n = 0; n < columns_n; ++n) {
      const std::size_t e = r / 8 * 2 + (n & 1);
      const std::size_t lane = 4 * (r % 8) + n / 2;
      row<u32>(w, i.o[e])[lane] = c[e][lane] + static_cast<u32>(sum[n]);
    }
  }
  ++w.mmas;
  return step::next;
}

}  // namespace

#ifdef KVPROOF_EMULATOR_AVX2
handler select_tensor_avx2(const instruction& i) {
#else
handler select_tensor_baseline(const instruction& i) {
#endif
  if (i.op != opcode::mma) return nullptr;
  using u8 = std::uint8_t;
  using s8 = std::int8_t;
  if (i.t == type::f16) return i.vector == 8 ? mma<true, 8> : mma<true, 16>;
  if (i.t == type::bf16) return i.vector == 8 ? mma<false, 8> : mma<false, 16>;
  if (i.t == type::u8) return i.t2 == type::u8 ? mma_bytes<u8, u8> : mma_bytes<u8, s8>;
  return i.t2 == type::u8 ? mma_bytes<s8, u8> : mma_bytes<s8, s8>;
}

}  // namespace kvproof::gpu::emulator
