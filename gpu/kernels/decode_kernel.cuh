// Decode attention over quantized pages and the fp16 recent part
// (reference/spec/decode_attention.md).
//
// A CTA is 4 warps; warp w is strand w of a split. A warp's pages arrive through its own ring of
// page-sized stages, one bulk copy a page, so the loop has no CTA barrier. K and V are the A
// operand of an MMA, queries or probabilities the N = 8 operand: a KV head is dequantized once for
// its whole GQA group. Lane layout of an MMA result: g = lane / 4 is the row (token or channel; +8
// in the second half), t = lane % 4 holds the columns 2t and 2t + 1.
//
// The grid may have any size: each CTA takes a contiguous range of all (head, split) items (an even
// share of them, or of the pages where lengths differ), cut into segments: consecutive splits of
// one head. The ring runs on across splits and segments, so memory never waits for the end of one.
// A CTA that owns all splits of a head folds them in registers; otherwise each split leaves a
// partial and the CTA that completes the head's ticket folds them in the same order. Either way the
// bits are a function of the lengths alone.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "gpu/kernels/decode_shape.hpp"
#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/page_layout.cuh"
#include "gpu/kernels/ptx.cuh"
#include "reference/spec/attention_plan.hpp"

namespace kvproof::gpu {

constexpr int query_columns = spec::max_gqa_ratio;

// What a cache holds beside its recent part.
template <spec::format_id Format>
struct one_part {
  static constexpr bool tiers = false;
  static constexpr spec::format_id first = Format, low = Format;
};
struct two_tiers {
  static constexpr bool tiers = true;
  static constexpr spec::format_id first = spec::format_id::k8v4, low = spec::format_id::k4v2;
};

template <class Cache, int HeadDim, int Ratio>
struct decode_policy {
  static constexpr bool tiers = Cache::tiers;
  using layout = page_layout<Cache::first, HeadDim>;    // of the one part, or the high tier
  using low_layout = page_layout<Cache::low, HeadDim>;  // of the low tier
  static constexpr int head_dim = HeadDim;
  static constexpr int groups = HeadDim / 16;  // of channels
  static constexpr int ratio = Ratio;          // G
  // Queries of a lane. Up to four queries stand in every second column of an MMA result, so that a
  // lane holds one of them and spends no work on padding.
  static constexpr int lane_queries = Ratio <= 4 ? 1 : 2;
  static constexpr decode_shape shape =
      decode_shape_of(spec::format_of(Cache::first), HeadDim, Ratio, tiers);
  static constexpr int stages = shape.stages;
  static constexpr int stage_bytes = layout::content_bytes > low_layout::content_bytes
                                         ? layout::content_bytes
                                         : low_layout::content_bytes;  // of one warp's page
  static constexpr int exchange_stride = shape.exchange_stride;
  static constexpr int query_bytes =
      decode_query_bytes(spec::format_of(Cache::first), HeadDim, Ratio);

  // The column of a query, and the query of a column (padding: ratio or more).
  static __device__ constexpr int column(int query) { return query * (3 - lane_queries); }
  static __device__ constexpr int query_of(int column) {
    return lane_queries == 2 ? column : column % 2 == 0 ? column / 2 : ratio;
  }
  // The query of lane 4g + t.
  static __device__ constexpr int lane_query(int t, int r) { return lane_queries * t + r; }
};

namespace decode_detail {

// Calls f(integral_constant<int, i>) for i = 0 .. N-1, unrolled.
template <class F, int... I>
__device__ __forceinline__ void for_each_index(std::integer_sequence<int, I...>, F&& f) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F>
__device__ __forceinline__ void unrolled(F&& f) {
  for_each_index(std::make_integer_sequence<int, N>{}, static_cast<F&&>(f));
}

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// Scores or probabilities of one tile in a lane: tokens g and g + 8 of each of its queries.
template <int Queries>
struct tile_values {
  float at[2][Queries];
};

// What one lane holds of a strand: for its queries the maximum, and accumulators.
template <int Groups, int Queries>
struct strand {
  float m[Queries];
  float l[Queries] = {};  // per_token: sums of this lane's tokens
  float z[Queries] = {};  // per_token: zero terms of this lane's tokens
  // per_token: sum of P'; group16: zero terms (rows 0-7), l (rows 8-15); recent: l
  float zc[4] = {};
  float o[Groups][4] = {};  // [channel group][row g, g + 8 x columns 2t, 2t + 1]

  __device__ strand() {
    for (float& x : m) x = minus_infinity();
  }

  // Raises the maximum to that of the block's scores. Lanes see only their own tokens; the exchange
  // runs only if some lane sees a rise, which does not change bits: a factor of exactly 1
  // multiplies exactly.
  template <int Tiles>
  __device__ __forceinline__ void raise(const tile_values<Queries> (&s)[Tiles]) {
    float x[Queries];
    bool rises = false;
    for (int r = 0; r < Queries; ++r) {
      x[r] = s[0].at[0][r];
      for (int i = 0; i < Tiles; ++i) x[r] = fmaxf(x[r], fmaxf(s[i].at[0][r], s[i].at[1][r]));
      rises = rises || x[r] > m[r];
    }
    if (!__any_sync(~0u, rises)) return;
    for (int r = 0; r < Queries; ++r) {
      for (int step = 4; step < 32; step *= 2) x[r] = fmaxf(x[r], __shfl_xor_sync(~0u, x[r], step));
      const float n = x[r] > m[r] ? x[r] : m[r];
      const float f = x[r] > m[r] ? ex2(__fsub_rn(m[r], n)) : 1.0f;
      m[r] = n;
      l[r] = __fmul_rn(l[r], f);
      z[r] = __fmul_rn(z[r], f);
      for (int half = 0; half < 4; half += 2) {
        zc[half + r] = __fmul_rn(zc[half + r], f);
        for (int j = 0; j < Groups; ++j) o[j][half + r] = __fmul_rn(o[j][half + r], f);
      }
    }
  }

  // exp2(s - m) of one tile.
  __device__ __forceinline__ tile_values<Queries> probabilities(
      const tile_values<Queries>& s) const {
    tile_values<Queries> p;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < Queries; ++r) p.at[half][r] = ex2(__fsub_rn(s.at[half][r], m[r]));
    }
    return p;
  }
};

// The lane's half of a tile (`half` 0: tokens g, 1: tokens g + 8) as 8 x 8 part of the operand B.
template <int Queries>
__device__ __forceinline__ std::uint32_t as_operand(const float (&x)[Queries]) {
  return transpose_8x8(pack_halves(x[0], Queries == 2 ? x[Queries - 1] : 0.0f));
}

// Queries of the per-token formats in fixed point (decode_attention.md section 1): the B operand
// of m16n8k32, two signed 8-bit limbs a query. With one query a lane, column 2t is its high and
// 2t + 1 its low limb; with two, the limbs are two operands. `memory` is where the warps share the
// work: [pair of channel groups][lane].
template <class Policy>
struct integer_queries {
  static constexpr int n = Policy::lane_queries, pairs = Policy::head_dim / 32;
  uint2 limbs[pairs][n];  // [.][0]: both limbs, or the high ones; [.][1]: the low ones
  float cq[n], qz[n];
  float c;

  // All warps call; nobody reads the queries of the head before any more.
  __device__ integer_queries(const decode_params& p, std::int64_t head, std::uint32_t memory,
                             int warp, int lane)
      : c(p.c) {
    const int g = lane / 4, t = lane % 4;
    const int query = n == 1 ? g / 2 : g;
    const bool real = query < Policy::ratio;
    const auto* const row = reinterpret_cast<const std::uint32_t*>(
        p.q + (head * Policy::ratio + (real ? query : 0)) * Policy::head_dim);
    std::uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < 4 * pairs; ++j)
      largest = max_halves(largest, __ldg(row + 4 * j + t) & 0x7fff7fffu);
    float qm = fmaxf(low_half(largest), high_half(largest));
    qm = fmaxf(qm, __shfl_xor_sync(~0u, qm, 1));
    qm = fmaxf(qm, __shfl_xor_sync(~0u, qm, 2));
    if (!real) qm = 0.0f;
    const float reciprocal = qm == 0.0f ? 0.0f : __fdiv_rn(fixed_point_limit, qm),
                unit = __fdiv_rn(qm, fixed_point_limit);
    const std::uint32_t own = memory + 8 * n * lane;
    if (warp < pairs) {
      std::uint32_t high[2], low[2];
      for (int k = 0; k < 2; ++k) {  // channel group of the pair
        std::uint32_t bits[4];
        for (int h = 0; h < 2; ++h) {
          const std::uint32_t word = __ldg(row + 16 * warp + 8 * k + 4 * h + t);
          bits[2 * h] = to_integer(__fmul_rn(low_half(word), reciprocal));
          bits[2 * h + 1] = to_integer(__fmul_rn(high_half(word), reciprocal));
        }
        low[k] = gather_bytes(bits, 0x0040);
        for (std::uint32_t& x : bits) x += 128;
        high[k] = gather_bytes(bits, 0x0051);
      }
      if constexpr (n == 2) {
        store_shared_8(own + 64 * 8 * warp, high[0], high[1]);
        store_shared_8(own + 64 * 8 * warp + 8, low[0], low[1]);
      } else {
        store_shared_8(own + 32 * 8 * warp, g % 2 == 0 ? high[0] : low[0],
                       g % 2 == 0 ? high[1] : low[1]);
      }
    }
    __syncthreads();
    int sum[n][4] = {};
    constexpr std::uint32_t ones = 0x01010101;
    unrolled<pairs>([&](auto pair) {
      for (int r = 0; r < n; ++r) {
        limbs[pair][r] = load_shared_8(own + 32 * 8 * n * pair + 8 * r);
        mma_bytes(sum[r], {ones, ones, ones, ones}, limbs[pair][r].x, limbs[pair][r].y);
      }
    });
    for (int r = 0; r < n; ++r) {
      const int high = sum[0][r], low = n == 2 ? sum[n - 1][r] : sum[0][1];
      cq[r] = __fmul_rn(p.c, __shfl_sync(~0u, unit, 4 * Policy::column(Policy::lane_query(t, r))));
      qz[r] = __fmul_rn(cq[r], __int2float_rn(256 * high + low));
    }
  }

  static constexpr float fixed_point_limit = 32639.0f;
  // 1.5 * 2^23: added to an integer below 2^22 in size, the low bits of the sum are the integer.
  static constexpr float integer_bias = 12582912.0f;
  static constexpr int integer_bias_bits = 0x4b400000;

  // rne(x) modulo 2^22, |x| < 2^22.
  __device__ static std::uint32_t to_integer(float x) {
    return __float_as_uint(__fadd_rn(x, integer_bias));
  }
  // The bytes that `selector` takes of the pairs (0, 1) and (2, 3).
  __device__ static std::uint32_t gather_bytes(const std::uint32_t (&x)[4], unsigned selector) {
    return __byte_perm(__byte_perm(x[0], x[1], selector), __byte_perm(x[2], x[3], selector),
                       0x5410);
  }
};

// Queries of int2_g16 as the N = 8 operand of m16n8k16, in shared memory (registers are scarcer):
// fragments [group][lane] of 8 bytes. As stored, for the zero terms; and cut in two short numbers
// (decode_attention.md section 1) times 2^(eK - E). With one query a lane, column 2t of these is
// the high number and 2t + 1 the low one; with two, they are two operands. The four warps share
// them.
template <class Policy>
struct half_queries {
  static constexpr int groups = Policy::layout::groups, n = Policy::lane_queries;
  static constexpr int key_bits = Policy::layout::key_bits;
  static constexpr int common_exponent = 20;  // E
  static constexpr int copy_bytes = groups * 256;
  std::uint32_t stored, scaled;  // shared addresses, of this lane; scaled: n copies
  float c, cs;

  // All warps call; nobody reads the queries of the head before any more.
  __device__ half_queries(const decode_params& p, std::int64_t head, std::uint32_t memory, int warp,
                          int lane)
      : stored(memory + 8 * lane), scaled(stored + copy_bytes), c(p.c) {
    cs = __fmul_rn(c, static_cast<float>(1 << common_exponent));
    const int column = lane / 4, t = lane % 4;
    const int query = n == 1 ? column / 2 : column;
    const bool real = query < Policy::ratio;
    const auto* const row = reinterpret_cast<const std::uint32_t*>(
        p.q + (head * Policy::ratio + (real ? query : 0)) * Policy::head_dim);
    unrolled<groups / decode_warps>([&](auto index) {
      constexpr int step = decltype(index)::value;
      const int j = warp + decode_warps * step;
      const std::uint32_t q[2] = {real ? __ldg(row + 8 * j + t) : 0u,
                                  real ? __ldg(row + 8 * j + 4 + t) : 0u};
      const std::uint32_t unit = unit_of(j);
      std::uint32_t high[2], low[2];
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t short_q = q[k] & 0xffc0ffc0u;
        high[k] = mul_halves(short_q, unit);
        low[k] = mul_halves(sub_halves(q[k], short_q), unit);
      }
      store_shared_8(stored + 256 * j, q[0], q[1]);
      if constexpr (n == 1) {
        store_shared_8(scaled + 256 * j, column % 2 == 0 ? high[0] : low[0],
                       column % 2 == 0 ? high[1] : low[1]);
      } else {
        store_shared_8(scaled + 256 * j, high[0], high[1]);
        store_shared_8(scaled + copy_bytes + 256 * j, low[0], low[1]);
      }
    });
    __syncthreads();
  }

  // 2^(eK(j) - E), twice.
  __device__ static std::uint32_t unit_of(int j) {
    std::uint32_t unit = 0;
    unrolled<groups>([&](auto index) {
      constexpr int i = decltype(index)::value;
      constexpr int down = common_exponent - operand_exponent<key_bits, false, Policy::head_dim>(
                                                 Policy::layout::key_field(0, i));
      if (i == j) unit = static_cast<std::uint32_t>(15 - down) << 10;
    });
    return unit | unit << 16;
  }
};

template <class Policy>
using queries =
    std::conditional_t<Policy::layout::per_token, integer_queries<Policy>, half_queries<Policy>>;

template <int Bits, bool Value, int HeadDim, int Field>
__device__ __forceinline__ a_fragment operand_fragment(const uint4& w) {
  return {
      operand_of<Bits, Value, HeadDim, Field>(w.x), operand_of<Bits, Value, HeadDim, Field>(w.y),
      operand_of<Bits, Value, HeadDim, Field>(w.z), operand_of<Bits, Value, HeadDim, Field>(w.w)};
}

// Base-2 logits of the tokens of a page in shared memory at `page`, s[tile]: per-token formats.
template <class layout, class Policy>
__device__ __forceinline__ void page_scores(std::uint32_t page, const integer_queries<Policy>& q,
                                            int lane, tile_values<Policy::lane_queries>* s) {
  using number = integer_queries<Policy>;
  constexpr int n = Policy::lane_queries;
  constexpr bool nibbles = layout::key_bits == 4;
  const int g = lane / 4;
  unrolled<layout::tiles>([&](auto tile_index) {
    constexpr int i = decltype(tile_index)::value;
    // Biased, so that the bits are a float (integer_bias). High nibbles stay where they are, as 16
    // times their code; low nibbles have sums of their own.
    int sum[n][4], low[n][4];
    for (int r = 0; r < n; ++r) {
      for (int k = 0; k < 4; ++k) {
        sum[r][k] = number::integer_bias_bits;
        low[r][k] = 0;
      }
    }
    unrolled<layout::key_fragments_of_tile>([&](auto fragment_index) {
      constexpr int f = decltype(fragment_index)::value;
      const uint4 w = load_shared_16(
          page + (i * layout::key_fragments_of_tile + f) * layout::fragment_bytes + lane * 16);
      if constexpr (nibbles) {
        constexpr std::uint32_t lower = 0x0f0f0f0f, upper = 0xf0f0f0f0;
        for (int r = 0; r < n; ++r) {
          mma_bytes(low[r], {w.x & lower, w.y & lower, w.z & lower, w.w & lower},
                    q.limbs[2 * f][r].x, q.limbs[2 * f][r].y);
          mma_bytes(sum[r], {w.x & upper, w.y & upper, w.z & upper, w.w & upper},
                    q.limbs[2 * f + 1][r].x, q.limbs[2 * f + 1][r].y);
        }
      } else {
        for (int r = 0; r < n; ++r)
          mma_bytes(sum[r], {w.x, w.y, w.z, w.w}, q.limbs[f][r].x, q.limbs[f][r].y);
      }
    });
    const uint4 meta =
        load_shared_16(page + layout::scale_offset + 128 * i + 16 * g);  // tokens g, g + 8
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t key = half == 0 ? meta.x : meta.z;
      const float ks = low_half(key), kz = high_half(key);
      for (int r = 0; r < n; ++r) {
        int high_sum = sum[0][2 * half + r],
            low_sum = n == 2 ? sum[n - 1][2 * half + r] : sum[0][2 * half + 1];
        float dot;                // high * 256 + low, rounded once
        if constexpr (nibbles) {  // a 16th of both
          high_sum += 16 * low[0][2 * half + r];
          low_sum += 16 * (n == 2 ? low[n - 1][2 * half + r] : low[0][2 * half + 1]);
          dot = __fmaf_rn(
              __fsub_rn(__int_as_float(high_sum), number::integer_bias), 16.0f,
              __fmaf_rn(__int_as_float(low_sum), 0.0625f, -0.0625f * number::integer_bias));
        } else {
          dot = __fmaf_rn(__fsub_rn(__int_as_float(high_sum), number::integer_bias), 256.0f,
                          __fsub_rn(__int_as_float(low_sum), number::integer_bias));
        }
        s[i].at[half][r] = __fmaf_rn(__fmul_rn(ks, q.cq[r]), dot, __fmul_rn(kz, q.qz[r]));
      }
    }
  });
}

// The same of int2_g16.
template <class layout, class Policy>
__device__ __forceinline__ void page_scores(std::uint32_t page, const half_queries<Policy>& q,
                                            int lane, tile_values<Policy::lane_queries>* s) {
  constexpr int d = Policy::head_dim, n = Policy::lane_queries;
  const int g = lane / 4, t = lane % 4;
  float zk[4] = {0, 0, 0, 0};  // row r: zero term of tile r % 4
  for (int pair = 0; pair < layout::groups / 2; ++pair) {
    const uint4 z = load_shared_16(page + layout::key_zero_offset + 256 * pair +
                                   64 * (g % layout::tiles) + 16 * t);
    const uint2 q0 = load_shared_8(q.stored + 512 * pair),
                q1 = load_shared_8(q.stored + 512 * pair + 256);
    mma(zk, {z.x, 0, z.y, 0}, q0.x, q0.y);
    mma(zk, {z.z, 0, z.w, 0}, q1.x, q1.y);
  }
  for (int r = 0; r < n; ++r) zk[r] = __fmul_rn(zk[r], q.c);
  float dot[n][layout::tiles][4] = {};  // n == 1: dh and dl in neighbouring columns
  uint4 w[layout::tiles], scale[layout::tiles];
  unrolled<layout::groups>([&](auto group_index) {
    constexpr int j = decltype(group_index)::value;
    uint2 b[n];
    for (int r = 0; r < n; ++r)
      b[r] = load_shared_8(q.scaled + half_queries<Policy>::copy_bytes * r + 256 * j);
    unrolled<layout::tiles>([&](auto tile_index) {
      constexpr int i = decltype(tile_index)::value;
      constexpr int field = layout::key_field(i, j);
      if constexpr (j == 0 || field == 0) {
        w[i] =
            load_shared_16(page + layout::key_fragment(i, j) * layout::fragment_bytes + lane * 16);
      }
      if constexpr (j % 2 == 0) {
        scale[i] = load_shared_16(page + layout::key_scale_offset + layout::tile_scale_bytes * i +
                                  32 * j + 16 * t);
      }
      const a_fragment keys = operand_fragment<layout::key_bits, false, d, field>(w[i]);
      for (int r = 0; r < n; ++r) {
        mma(dot[r][i], keys, mul_halves(b[r].x, j % 2 == 0 ? scale[i].x : scale[i].z),
            mul_halves(b[r].y, j % 2 == 0 ? scale[i].y : scale[i].w));
      }
    });
  });
  for (int i = 0; i < layout::tiles; ++i) {
    for (int r = 0; r < n; ++r) {
      const float zero = __shfl_sync(~0u, zk[r], 4 * i + t);
      for (int half = 0; half < 2; ++half) {
        const int at = 2 * half + r;
        const float sum = __fadd_rn(dot[0][i][at], n == 1 ? dot[0][i][at + 1] : dot[n - 1][i][at]);
        s[i].at[half][r] = __fmaf_rn(sum, q.cs, zero);
      }
    }
  }
}

// Adds the probabilities times values of a page to the strand; s[tile]: its logits.
template <class layout, int n>
__device__ __forceinline__ void page_values(std::uint32_t page, const tile_values<n>* s, int lane,
                                            strand<layout::groups, n>& a) {
  constexpr int d = layout::head_dim;
  constexpr float middle = ((1 << layout::value_bits) - 1) * 0.5f;  // MID
  const int g = lane / 4, t = lane % 4;
  unrolled<layout::tiles>([&](auto tile_index) {
    constexpr int i = decltype(tile_index)::value;
    const tile_values<n> p = a.probabilities(s[i]);
    std::uint32_t b0, b1;
    if constexpr (layout::per_token) {
      const uint4 meta = load_shared_16(page + layout::scale_offset + 128 * i + 16 * g);
      const float v0 = low_half(meta.y), v1 = low_half(meta.w);
      const float z0 = __fmaf_rn(v0, middle, high_half(meta.y)),
                  z1 = __fmaf_rn(v1, middle, high_half(meta.w));
      tile_values<n> scaled;  // P' before its rounding
      for (int r = 0; r < n; ++r) {
        const float p0 = p.at[0][r], p1 = p.at[1][r];
        a.l[r] = __fadd_rn(__fadd_rn(a.l[r], p0), p1);
        a.z[r] = __fmaf_rn(p1, z1, __fmaf_rn(p0, z0, a.z[r]));
        scaled.at[0][r] = __fmul_rn(p0, v0);
        scaled.at[1][r] = __fmul_rn(p1, v1);
      }
      b0 = as_operand(scaled.at[0]);
      b1 = as_operand(scaled.at[1]);
      mma(a.zc, {half2_ones, half2_ones, half2_ones, half2_ones}, b0, b1);
    } else {
      b0 = as_operand(p.at[0]);
      b1 = as_operand(p.at[1]);
      uint2 zero =
          make_uint2(0, 0);  // rows 0-7: zeros of the channel groups; rows 8-15: ones, for l
      if (g < layout::groups) {
        zero = load_shared_8(page + layout::value_zero_offset + layout::tile_scale_bytes * i +
                             8 * lane);
      }
      mma(a.zc, {zero.x, half2_ones, zero.y, half2_ones}, b0, b1);
    }
    uint4 w{};
    [[maybe_unused]] uint4 scale{};  // group16 only
    unrolled<layout::groups>([&](auto group_index) {
      constexpr int j = decltype(group_index)::value;
      constexpr int field = layout::value_field(i, j);
      if constexpr (j == 0 || field == 0) {
        w = load_shared_16(page + layout::value_offset +
                           layout::value_fragment(i, j) * layout::fragment_bytes + lane * 16);
      }
      const a_fragment v = operand_fragment<layout::value_bits, true, d, field>(w);
      if constexpr (layout::per_token) {
        mma(a.o[j], v, b0, b1);
      } else {
        if constexpr (j % 2 == 0) {
          scale = load_shared_16(page + layout::value_scale_offset + layout::tile_scale_bytes * i +
                                 32 * j + 16 * t);
        }
        mma(a.o[j], v, mul_halves(b0, j % 2 == 0 ? scale.x : scale.z),
            mul_halves(b1, j % 2 == 0 ? scale.y : scale.w));
      }
    });
  });
}

// Turns the accumulators of a strand of pages into l and the unnormalised output.
template <class layout, int n>
__device__ __forceinline__ void finish_pages(strand<layout::groups, n>& a, int lane) {
  constexpr float middle = ((1 << layout::value_bits) - 1) * 0.5f;
  for (int r = 0; r < n; ++r) {
    if constexpr (layout::per_token) {
      for (int step = 4; step < 32; step *= 2) {
        a.l[r] = __fadd_rn(a.l[r], __shfl_xor_sync(~0u, a.l[r], step));
        a.z[r] = __fadd_rn(a.z[r], __shfl_xor_sync(~0u, a.z[r], step));
      }
      a.z[r] = __fmaf_rn(-middle, a.zc[r], a.z[r]);
    } else {
      a.l[r] = a.zc[2 + r];
    }
  }
  unrolled<layout::groups>([&](auto group_index) {
    constexpr int j = decltype(group_index)::value;
    constexpr auto scale =
        static_cast<float>(1 << operand_exponent<layout::value_bits, true, layout::head_dim>(
                               layout::value_field(0, j)));
    for (int r = 0; r < n; ++r) {
      float y = a.z[r];
      if constexpr (!layout::per_token) y = __shfl_sync(~0u, a.zc[r], 4 * j + lane % 4);
      for (int half = 0; half < 4; half += 2)
        a.o[j][half + r] = __fmaf_rn(a.o[j][half + r], scale, y);
    }
  });
}

// Four channels 4t .. 4t + 3 of a group of a row of the recent part; slots behind the end read as
// +0. As columns of an operand they stand at 2t, 2t + 1, 2t + 8, 2t + 9: a sum over channels does
// not see their order.
__device__ __forceinline__ uint2 recent_quad(const std::uint16_t* rows, int head_dim, int token,
                                             int count, int channel) {
  if (token >= count) return make_uint2(0, 0);
  return __ldg(
      reinterpret_cast<const uint2*>(rows + static_cast<std::int64_t>(token) * head_dim + channel));
}
// The channel of a group that stands in row g of a result of recent_strand (row g + 8: 2 more).
__device__ __forceinline__ int recent_channel(int g) { return 4 * (g / 2) + g % 2; }

// Writes a tile's scores of real queries for tokens below `limit`. `scores` is the head's
// [token][G].
template <class Policy>
__device__ __forceinline__ void store_scores(float* scores,
                                             const tile_values<Policy::lane_queries>& s, int token,
                                             int limit, int t, std::uint64_t keep) {
  constexpr int n = Policy::lane_queries, ratio = Policy::ratio;
  const int query = Policy::lane_query(t, 0);
  for (int half = 0; half < 2; ++half) {
    const int at = token + 8 * half;
    float* const to = scores + static_cast<std::int64_t>(at) * ratio + query;
    if (at >= limit) continue;
    if constexpr (n == 2 && ratio % 2 == 0) {
      if (query < ratio)
        store_kept(reinterpret_cast<float2*>(to), make_float2(s.at[half][0], s.at[half][n - 1]),
                   keep);
    } else {
      for (int r = 0; r < n; ++r) {
        if (query + r < ratio) store_kept(to + r, s.at[half][r], keep);
      }
    }
  }
}

// The recent part's strand of this warp: blocks warp, warp + 4, ... of 32 tokens. Its first token
// is at `position`.
template <class Policy>
__device__ __forceinline__ void recent_strand(const decode_params& p, std::int64_t head,
                                              int position, int count, int warp, int lane,
                                              strand<Policy::groups, Policy::lane_queries>& a,
                                              float* scores, std::uint64_t keep) {
  constexpr int d = Policy::head_dim, groups = Policy::groups, n = Policy::lane_queries,
                tiles = spec::tokens_per_recent_block / 16;
  const int g = lane / 4, t = lane % 4;
  const std::int64_t base = head * p.recent_capacity * d;
  const std::uint16_t* const keys = p.recent_k + base;
  const std::uint16_t* const values = p.recent_v + base;
  const bool real = Policy::query_of(g) < Policy::ratio;
  const std::uint16_t* const query =
      p.q + (head * Policy::ratio + (real ? Policy::query_of(g) : 0)) * d;
  for (int first = warp * spec::tokens_per_recent_block; first < count;
       first += decode_warps * spec::tokens_per_recent_block) {
    float dot[tiles][4] = {};
    for (int j = 0; j < groups; ++j) {
      const int channel = 16 * j + 4 * t;
      const uint2 b = recent_quad(query, 0, 0, real ? 1 : 0, channel);
      for (int i = 0; i < tiles; ++i) {
        const int token = first + 16 * i + g;
        const uint2 k0 = recent_quad(keys, d, token, count, channel),
                    k1 = recent_quad(keys, d, token + 8, count, channel);
        mma(dot[i], {k0.x, k1.x, k0.y, k1.y}, b.x, b.y);
      }
    }
    tile_values<n> s[tiles];
    for (int i = 0; i < tiles; ++i) {
      const int token = first + 16 * i + g;
      for (int half = 0; half < 2; ++half) {
        for (int r = 0; r < n; ++r)
          s[i].at[half][r] =
              token + 8 * half < count ? __fmul_rn(dot[i][2 * half + r], p.c) : minus_infinity();
      }
      if (scores != nullptr)
        store_scores<Policy>(scores, s[i], position + token, position + count, t, keep);
    }
    a.raise(s);
    for (int i = 0; i < tiles; ++i) {
      const tile_values<n> e = a.probabilities(s[i]);
      const std::uint32_t b0 = as_operand(e.at[0]), b1 = as_operand(e.at[1]);
      mma(a.zc, {half2_ones, half2_ones, half2_ones, half2_ones}, b0, b1);
      const int token = first + 16 * i + g;
      for (int j = 0; j < groups; ++j) {
        const int channel = 16 * j + 4 * t;
        const uint2 v0 = recent_quad(values, d, token, count, channel),
                    v1 = recent_quad(values, d, token + 8, count, channel);
        mma(a.o[j],
            {transpose_8x8(v0.x), transpose_8x8(v0.y), transpose_8x8(v1.x), transpose_8x8(v1.y)},
            b0, b1);
      }
    }
  }
  for (int r = 0; r < n; ++r) a.l[r] = a.zc[r];
}

// Asks for the recent part of a head, which comes last.
template <class Policy>
__device__ __forceinline__ void prefetch_recent(const decode_params& p, std::int64_t head,
                                                int count) {
  constexpr int line = 128, row_bytes = Policy::head_dim * 2;
  const std::int64_t base = head * p.recent_capacity * row_bytes;
  for (int at = static_cast<int>(threadIdx.x) * line; at < count * row_bytes;
       at += decode_threads * line) {
    prefetch_to_l2(reinterpret_cast<const char*>(p.recent_k) + base + at);
    prefetch_to_l2(reinterpret_cast<const char*>(p.recent_v) + base + at);
  }
}

// Where the four strands of a split meet, beside `sums` in dynamic shared memory.
struct exchange {
  float m[decode_warps][query_columns];
  float l[decode_warps][query_columns];
};

// How a quantized part of a head is cut. A block is a page, or two of K8V4: the last block of a
// part may have one.
struct part_plan {
  int tokens, blocks, blocks_per_split, splits;
};
__device__ __forceinline__ part_plan plan_part(int tokens) {
  const spec::split_plan plan = spec::plan_splits(tokens);
  return {tokens, (tokens + spec::tokens_per_block - 1) / spec::tokens_per_block,
          static_cast<int>(plan.tokens_per_split) / spec::tokens_per_block,
          static_cast<int>(plan.num_splits)};
}
template <class Policy>
struct head_plan {
  part_plan first, low;  // low: two tiers only, else nothing
  int recent;
  __device__ __forceinline__ head_plan(const decode_params& p, std::int64_t head)
      : first(plan_part(p.num_quantized[head])),
        low{},
        recent(p.recent_capacity > 0 ? p.num_recent[head] : 0) {
    if constexpr (Policy::tiers) low = plan_part(p.num_low[head]);
  }
  [[nodiscard]] __device__ __forceinline__ int splits() const {
    return first.splits + low.splits + (recent > 0 ? 1 : 0);
  }
  // Work of the head: about a page a unit, `split_end` for the end of a split, and one a head, so
  // that empty heads are spread too.
  [[nodiscard]] __device__ __forceinline__ unsigned weight(unsigned split_end) const {
    return work_of(first, pages_of_block, split_end) + work_of(low, 1, split_end) +
           (recent > 0 ? (recent + 15) / 16 + split_end : 0) + 1;
  }
  // The first split that begins at or behind `at` units of that work.
  [[nodiscard]] __device__ __forceinline__ int split_at(unsigned at, unsigned split_end) const {
    const auto splits_of = [&](unsigned work, const part_plan& part, unsigned pages) {
      const unsigned of_split = part.blocks_per_split * pages + split_end;
      return static_cast<int>((work + of_split - 1) / of_split);
    };
    const unsigned of_first = work_of(first, pages_of_block, split_end);
    if (at <= of_first) return splits_of(at, first, pages_of_block);
    at -= of_first;
    return Policy::tiers && at <= work_of(low, 1, split_end) ? first.splits + splits_of(at, low, 1)
                                                             : splits();
  }

 private:
  static constexpr unsigned pages_of_block = Policy::layout::pages_of_block;
  [[nodiscard]] static __device__ __forceinline__ unsigned work_of(const part_plan& part,
                                                                   unsigned pages,
                                                                   unsigned split_end) {
    return part.blocks * pages + part.splits * split_end;
  }
};

// The items of a CTA: item = head * max_splits + split, from begin up to end.
struct work_range {
  int begin, end;
};

// Shares of the work of all heads, for lengths that differ. Every CTA sums up all heads; ranges end
// at splits. `scratch`: shared memory.
template <class Policy>
__device__ __forceinline__ work_range balanced_range(const decode_params& p, unsigned* scratch) {
  constexpr unsigned split_end = 12;  // measured: short heads are mostly ends of splits
  const int heads = p.work_items / p.max_splits, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int each = (heads + decode_threads - 1) / decode_threads;
  const int first = static_cast<int>(threadIdx.x) * each, last = min(heads, first + each);
  unsigned own = 0;
  for (int head = first; head < last; ++head) own += head_plan<Policy>(p, head).weight(split_end);
  unsigned through = own;  // work up to and with this thread's heads
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned below = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += below;
  }
  if (lane == 31) scratch[warp] = through;
  __syncthreads();
  unsigned before = through - own, total = 0;
  for (int w = 0; w < decode_warps; ++w) {
    if (w < warp) before += scratch[w];
    total += scratch[w];
  }
  for (int side = 0; side < 2; ++side) {
    const auto edge = static_cast<unsigned>(std::uint64_t{total} * (blockIdx.x + side) / gridDim.x);
    if (edge < before || edge >= before + own) continue;
    unsigned at = edge - before;  // in the head
    for (int head = first;; ++head) {
      const head_plan<Policy> plan(p, head);
      const unsigned weight = plan.weight(split_end);
      if (at < weight) {
        scratch[decode_warps + side] = head * p.max_splits + plan.split_at(at, split_end);
        break;
      }
      at -= weight;
    }
  }
  __syncthreads();
  return {static_cast<int>(scratch[decode_warps]),
          blockIdx.x + 1 == gridDim.x ? p.work_items : static_cast<int>(scratch[decode_warps + 1])};
}
// The same where all heads are as long as the first one; a cover of all items whatever they are.
template <class Policy>
__device__ __forceinline__ work_range even_range(const decode_params& p) {
  const unsigned cta = blockIdx.x;
  if (static_cast<int>(gridDim.x) == p.work_items)
    return {static_cast<int>(cta), static_cast<int>(cta) + 1};
  const head_plan<Policy> plan(p, 0);
  const std::uint64_t weight = plan.weight(0), total = weight * (p.work_items / p.max_splits);
  const auto item_at = [&](unsigned share) {
    const std::uint64_t edge = total * share / gridDim.x;
    return static_cast<int>(edge / weight) * p.max_splits +
           plan.split_at(static_cast<unsigned>(edge % weight), 0);
  };
  return {item_at(cta), cta + 1 == gridDim.x ? p.work_items : item_at(cta + 1)};
}

// The pages of one warp's strands, in the order in which it consumes them, from segment to segment:
// what the ring is filled from. It runs up to `stages` pages ahead of the consumer. A segment's
// lengths and its first 32 page ids of each part are asked for one segment ahead, so that crossing
// does not wait.
template <class Policy>
struct page_stream {
  using layout = typename Policy::layout;
  using low_layout = typename Policy::low_layout;
  // The pages of blocks first, first + 4, ... of a part: `length` of them. `ids`: page ids of
  // elements n * 32 + lane.
  struct page_run {
    int first, length;
    std::int32_t ids;
  };
  const decode_params& p;
  int head, end_head, end_split;  // of the segment whose pages are being issued; end of the range
  page_run run, low_run;          // being issued; what follows it (two tiers)
  int at = 0;                     // pages of `run` that have been issued
  bool in_low = false;            // whether `run` is of the low tier
  int next_tokens, next_low_tokens = 0;
  std::int32_t next_ids, next_low_ids = 0;

  // The CTA's range: from item `begin` up to item `end` (begin < end).
  __device__ page_stream(const decode_params& params, int begin, int end, int warp, int lane)
      : p(params),
        head(begin / params.max_splits),
        end_head(end / params.max_splits),
        end_split(end % params.max_splits) {
    const int k0 = begin % p.max_splits;
    if constexpr (Policy::tiers) {
      ask_for(head, warp, lane);
      if (k0 > 0) {
        const part_plan high = plan_part(next_tokens), low = plan_part(next_low_tokens);
        next_ids = table_entry<layout>(head, k0 * high.blocks_per_split + warp, lane);
        next_low_ids = table_entry<low_layout>(
            head, max(0, k0 - high.splits) * low.blocks_per_split + warp, lane);
      }
    } else {
      // The page ids do not wait for the length: a guess of the split's size, mended if wrong.
      const int guess = plan_part(p.max_quantized).blocks_per_split;
      next_ids = table_entry<layout>(head, k0 * guess + warp, lane);
      next_tokens = p.num_quantized[head];
      const int actual = plan_part(next_tokens).blocks_per_split;
      if (k0 > 0 && actual != guess) next_ids = table_entry<layout>(head, k0 * actual + warp, lane);
    }
    enter(k0, warp, lane);
  }

  // Entry of element j of the run from block `first`. The low tier's pages stand at the end of the
  // row, backwards.
  template <class Layout>
  __device__ std::int32_t table_entry(int of_head, int first, int j) const {
    constexpr int each = Layout::pages_of_block;
    const int page = (first + decode_warps * (j / each)) * each + j % each;
    const bool low = !std::is_same_v<Layout, layout>;
    const int entry = low ? p.max_pages - 1 - page : page;
    return page < p.max_pages
               ? __ldg(p.page_table + static_cast<std::int64_t>(of_head) * p.max_pages + entry)
               : 0;
  }
  __device__ bool in_range(int of_head) const {
    return of_head < end_head || (of_head == end_head && end_split > 0);
  }
  // Lengths and first ids of a head.
  __device__ void ask_for(int of_head, int warp, int lane) {
    next_tokens = p.num_quantized[of_head];
    next_ids = table_entry<layout>(of_head, warp, lane);
    if constexpr (Policy::tiers) {
      next_low_tokens = p.num_low[of_head];
      next_low_ids = table_entry<low_layout>(of_head, warp, lane);
    }
  }
  // Splits k0 up to k1 of a part, k0 and k1 counted from its first.
  template <class Layout>
  __device__ static page_run run_of(const part_plan& part, int k0, int k1, std::int32_t ids,
                                    int warp) {
    constexpr int each = Layout::pages_of_block;
    const int first = k0 * part.blocks_per_split + warp,
              stop = min(part.blocks, k1 * part.blocks_per_split);
    const int blocks = max(0, (stop - first + decode_warps - 1) / decode_warps);
    const int last_page = (first + decode_warps * (blocks - 1) + 1) * each - 1;
    const bool cut = each == 2 && last_page * Layout::tokens >= part.tokens;
    return {first, blocks * each - (blocks > 0 && cut ? 1 : 0), ids};
  }

  // Starts the segment of `head` at split k0 from what has been asked for, and asks for the next
  // head.
  __device__ void enter(int k0, int warp, int lane) {
    const int k1 = head < end_head ? p.max_splits : end_split;
    const part_plan first = plan_part(next_tokens);
    run = run_of<layout>(first, k0, k1, next_ids, warp);
    if constexpr (Policy::tiers) {
      low_run = run_of<low_layout>(plan_part(next_low_tokens), max(0, k0 - first.splits),
                                   max(0, k1 - first.splits), next_low_ids, warp);
      in_low = false;
    }
    at = 0;
    if (in_range(head + 1)) {
      ask_for(head + 1, warp, lane);
      constexpr int line = 128, query_bytes = Policy::ratio * Policy::head_dim * 2;
      if (warp == 0 && lane * line < query_bytes)
        prefetch_to_l2(reinterpret_cast<const char*>(p.q) +
                       static_cast<std::int64_t>(head + 1) * query_bytes + lane * line);
    }
  }

  // Issues the next page into the stage, if there is one. All lanes call, lane 0 acts.
  __device__ void issue(std::uint32_t to, std::uint32_t barrier, std::uint64_t policy, int warp,
                        int lane) {
    while (at == run.length) {
      if (Policy::tiers && !in_low) {
        run = low_run;
        in_low = true;
        at = 0;
        continue;
      }
      if (!in_range(head + 1)) return;
      ++head;
      enter(0, warp, lane);
    }
    if (at > 0 && at % 32 == 0)
      run.ids = in_low ? table_entry<low_layout>(head, run.first, at + lane)
                       : table_entry<layout>(head, run.first, at + lane);
    const int id = __shfl_sync(~0u, run.ids, at % 32);
    ++at;
    if (lane != 0) return;
    const unsigned bytes = in_low ? low_layout::content_bytes : layout::content_bytes;
    mbarrier_expect(barrier, bytes);
    bulk_load(to, p.pages + static_cast<std::int64_t>(id) * layout::bytes, bytes, barrier, policy);
  }
};

// Folds the partials of a head's splits in ascending order, as the CTA that arrived last. Factors
// first, 32 splits at a time (a lane each): they need only m, and a prefix maximum gives them all
// at once. `scratch` is shared memory for them; whatever else it held has been read.
template <class Policy>
__device__ void fold_partials(const decode_params& p, std::int64_t head, int splits, float* scratch,
                              float* out, float* state) {
  constexpr int d = Policy::head_dim, ratio = Policy::ratio;
  constexpr std::int64_t partial_floats = decode_partial_floats(ratio, d);
  constexpr int vectors = ratio * d / 4, steps = (vectors + decode_threads - 1) / decode_threads;
  constexpr int at_once = 8;  // loads in flight
  struct factor {
    float keep, add, l;
  };
  static_assert(32 * sizeof(factor) <= decode_warps * Policy::exchange_stride * 4, "scratch");
  factor* const factors = reinterpret_cast<factor*>(scratch);  // [split % 32][query]
  const float* const partials = p.partials + head * p.max_splits * partial_floats;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float4 o[steps];
  float l[steps];
  float carry[(ratio + decode_warps - 1) / decode_warps];  // maximum of the splits before
  for (float& m : carry) m = minus_infinity();
  for (int base = 0; base < splits; base += 32) {
    const int count = min(32, splits - base);
    const float* const from = partials + base * partial_floats;
    const auto load = [&](float4(&x)[at_once], int step, int k) {
      const int vector = threadIdx.x + step * decode_threads;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (k + i < count && vector < vectors)
          x[i] = __ldcg(reinterpret_cast<const float4*>(from + (k + i) * partial_floats) + vector);
      }
    };
    float4 ahead[at_once];
    load(ahead, 0, 0);
    if (base > 0) __syncthreads();  // the factors before have been read
#pragma unroll
    for (int step = 0; step < static_cast<int>(sizeof carry / sizeof carry[0]); ++step) {
      const int row = warp + step * decode_warps;
      if (row >= ratio) break;
      const float* const mine = from + lane * partial_floats + ratio * d + row;
      const float m = lane < count ? __ldcg(mine) : minus_infinity();
      const float sum = lane < count ? __ldcg(mine + ratio) : 0.0f;
      float prefix = m;
      for (int distance = 1; distance < 32; distance *= 2) {
        const float below = __shfl_up_sync(~0u, prefix, distance);
        if (lane >= distance) prefix = fmaxf(prefix, below);
      }
      prefix = fmaxf(prefix, carry[step]);
      float before = __shfl_up_sync(~0u, prefix, 1);
      if (lane == 0) before = carry[step];
      if (lane < count)
        factors[lane * ratio + row] = {ex2(__fsub_rn(before, prefix)), ex2(__fsub_rn(m, prefix)),
                                       sum};
      carry[step] = __shfl_sync(~0u, prefix, 31);
      if (lane == 0 && base + 32 >= splits) state[2 * row] = carry[step];
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = (threadIdx.x + step * decode_threads) * 4 / d;
      if (row >= ratio) break;
      for (int k = 0; k < count; k += at_once) {
        if (step > 0 || k > 0) load(ahead, step, k);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (k + i >= count) break;
          const factor f = factors[(k + i) * ratio + row];
          if (base + k + i == 0) {
            o[step] = ahead[i];
            l[step] = f.l;
            continue;
          }
          o[step].x = __fmaf_rn(o[step].x, f.keep, __fmul_rn(ahead[i].x, f.add));
          o[step].y = __fmaf_rn(o[step].y, f.keep, __fmul_rn(ahead[i].y, f.add));
          o[step].z = __fmaf_rn(o[step].z, f.keep, __fmul_rn(ahead[i].z, f.add));
          o[step].w = __fmaf_rn(o[step].w, f.keep, __fmul_rn(ahead[i].w, f.add));
          l[step] = __fmaf_rn(l[step], f.keep, __fmul_rn(f.l, f.add));
        }
      }
    }
  }
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const int vector = threadIdx.x + step * decode_threads, row = vector * 4 / d;
    if (row >= ratio) break;
    reinterpret_cast<float4*>(out)[vector] =
        make_float4(__fdiv_rn(o[step].x, l[step]), __fdiv_rn(o[step].y, l[step]),
                    __fdiv_rn(o[step].z, l[step]), __fdiv_rn(o[step].w, l[step]));
    if (vector * 4 % d == 0) state[2 * row + 1] = l[step];
  }
  __syncthreads();  // the scratch is free again
}

}  // namespace decode_detail

template <class Policy>
__device__ void decode(const decode_params& p) {
  using namespace decode_detail;
  using layout = typename Policy::layout;
  constexpr int d = Policy::head_dim, ratio = Policy::ratio, n = Policy::lane_queries;
  constexpr int stride = Policy::exchange_stride;
  constexpr int rows_at_once =
      decode_threads / d;  // query heads that the threads merge side by side
  constexpr int row_steps = (ratio + rows_at_once - 1) / rows_at_once;
  constexpr std::int64_t partial_floats = decode_partial_floats(ratio, d);  // o, m, l, padding

  extern __shared__ __align__(128) unsigned char shared[];
  float* const sums = reinterpret_cast<float*>(
      shared + decode_warps * Policy::stages * Policy::stage_bytes);  // [warp][query][stride]
  __shared__ __align__(8) std::uint64_t barriers[decode_warps * Policy::stages];
  __shared__ __align__(16) unsigned char query_memory[Policy::query_bytes];
  __shared__ exchange meet;
  __shared__ bool last_arriver;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int channel = threadIdx.x % d, first_row = threadIdx.x / d;  // of the merge
  const std::uint32_t ring = shared_address(shared + warp * Policy::stages * Policy::stage_bytes);
  const std::uint32_t barrier = shared_address(barriers + warp * Policy::stages);
  const std::uint64_t stream_policy = evict_first_policy(), keep_policy = evict_last_policy();
  if (lane == 0) {
    for (int i = 0; i < Policy::stages; ++i) mbarrier_init(barrier + 8 * i, 1);
    mbarrier_init_fence();
  }
  wait_for_previous_grid();
  allow_next_grid();
  const work_range range = p.balance != 0
                               ? balanced_range<Policy>(p, reinterpret_cast<unsigned*>(sums))
                               : even_range<Policy>(p);
  const int begin = range.begin, end = range.end;
  __syncthreads();

  if (begin == end) return;
  page_stream<Policy> stream(p, begin, end, warp, lane);
  for (int i = 0; i < Policy::stages; ++i)
    stream.issue(ring + i * Policy::stage_bytes, barrier + 8 * i, stream_policy, warp, lane);

  int stage = 0, parity = 0;  // of the warp's ring
  for (int item = begin, taken = 0; item < end; item += taken) {
    const std::int64_t head = item / p.max_splits;
    const int k0 = item % p.max_splits;
    taken = min(p.max_splits - k0, end - item);

    const head_plan<Policy> plan(p, head);
    const int splits = plan.splits(), page_splits = plan.first.splits + plan.low.splits;
    float* const out = p.out + head * ratio * d;
    float* const state = p.state + head * ratio * 2;
    if (splits == 0 && k0 == 0) {  // nothing to attend
      for (int i = threadIdx.x; i < ratio * d; i += decode_threads) out[i] = 0.0f;
      for (int i = threadIdx.x; i < ratio; i += decode_threads) {
        state[2 * i] = minus_infinity();
        state[2 * i + 1] = 0.0f;
      }
    }
    if (k0 >= splits) continue;
    const int k1 = min(splits, k0 + taken);
    const bool whole_head = k0 == 0 && k1 == splits;
    const queries<Policy> q(p, head, shared_address(query_memory), warp, lane);
    float* const scores =
        p.scores == nullptr ? nullptr : p.scores + head * p.score_capacity * ratio;

    if (k1 == splits && plan.recent > 0) prefetch_recent<Policy>(p, head, plan.recent);

    float total_m = 0, total_l = 0;  // running fold over splits of query lane % 8
    float total_o[row_steps];        // and of (query, channel) of this thread

    // Pairwise merge of the strands of split k, ascending; the finished split joins the running
    // total of the head, or becomes a partial. Lane (w, q) holds the factors of merging strand w
    // for query q: `keep` of the running value, `add` of the strand.
    const auto merge = [&](int k, int strands) {
      const int w = lane / query_columns, query = lane % query_columns;
      const float m = w < strands ? meet.m[w][query] : minus_infinity();
      const float l = w < strands ? meet.l[w][query] : 0.0f;
      float prefix = m;  // maximum of strands 0 .. w
      float below = __shfl_up_sync(~0u, prefix, query_columns);
      if (w >= 1) prefix = fmaxf(prefix, below);
      below = __shfl_up_sync(~0u, prefix, 2 * query_columns);
      if (w >= 2) prefix = fmaxf(prefix, below);
      const float keep = ex2(__fsub_rn(__shfl_up_sync(~0u, prefix, query_columns), prefix));
      const float add = ex2(__fsub_rn(m, prefix));
      const float split_m = __shfl_sync(~0u, prefix, (decode_warps - 1) * query_columns + query);
      float split_l = __shfl_sync(~0u, l, query);
      for (int i = 1; i < decode_warps; ++i) {
        const float next = __shfl_sync(~0u, l, i * query_columns + query);
        const float f = __shfl_sync(~0u, keep, i * query_columns + query),
                    e = __shfl_sync(~0u, add, i * query_columns + query);
        if (i < strands) split_l = __fmaf_rn(split_l, f, __fmul_rn(next, e));
      }
      float total_keep = 0, total_add = 1;
      if (k == k0 || !whole_head) {
        total_m = split_m;
        total_l = split_l;
      } else {
        const float n = fmaxf(total_m, split_m);
        total_keep = ex2(__fsub_rn(total_m, n));
        total_add = ex2(__fsub_rn(split_m, n));
        total_l = __fmaf_rn(total_l, total_keep, __fmul_rn(split_l, total_add));
        total_m = n;
      }
      float* const partial = p.partials + (head * p.max_splits + k) * partial_floats;
#pragma unroll
      for (int step = 0; step < row_steps; ++step) {
        const int row = first_row + step * rows_at_once;  // uniform in a warp
        const bool real = row < ratio;
        const int source = real ? row : 0;
        float o = sums[source * stride + channel];
        for (int i = 1; i < decode_warps; ++i) {
          const float f = __shfl_sync(~0u, keep, i * query_columns + source),
                      e = __shfl_sync(~0u, add, i * query_columns + source);
          if (i < strands)
            o = __fmaf_rn(o, f, __fmul_rn(sums[(i * ratio + source) * stride + channel], e));
        }
        if (whole_head) {
          const float f = __shfl_sync(~0u, total_keep, source),
                      e = __shfl_sync(~0u, total_add, source);
          const float sum = __shfl_sync(~0u, total_l, source);
          total_o[step] = k == k0 ? o : __fmaf_rn(total_o[step], f, __fmul_rn(o, e));
          if (k == k1 - 1 && real) out[row * d + channel] = __fdiv_rn(total_o[step], sum);
        } else if (real) {
          __stcg(partial + row * d + channel, o);
        }
      }
      if (threadIdx.x < ratio) {
        if (!whole_head) {
          __stcg(partial + ratio * d + threadIdx.x, total_m);
          __stcg(partial + ratio * d + ratio + threadIdx.x, total_l);
        } else if (k == k1 - 1) {
          state[2 * threadIdx.x] = total_m;
          state[2 * threadIdx.x + 1] = total_l;
        }
      }
    };

    strand<Policy::groups, n> a;
    // Takes the next `Pages` pages of the ring as a block of a part, its first token being `token`
    // of the part and `position` in the cache.
    const auto visit_block = [&](auto page_type, auto page_count, int token, int position,
                                 int tokens) {
      using page = decltype(page_type);
      constexpr int pages = decltype(page_count)::value, tiles = pages * page::tiles;
      tile_values<n> s[tiles];
      int place = stage, phase = parity;
      const auto next_stage = [](int& of, int& bit) {
        if (++of == Policy::stages) {
          of = 0;
          bit ^= 1;
        }
      };
      unrolled<pages>([&](auto index) {
        mbarrier_wait(barrier + 8 * place, phase);
        page_scores<page>(ring + place * Policy::stage_bytes, q, lane, s + index * page::tiles);
        next_stage(place, phase);
      });
      if (scores != nullptr) {
        for (int i = 0; i < tiles; ++i)
          store_scores<Policy>(scores, s[i], position + token + 16 * i + g, position + tokens, t,
                               keep_policy);
      }
      if (token + 16 * tiles > tokens) {
        for (int i = 0; i < tiles; ++i) {
          for (int half = 0; half < 2; ++half) {
            if (token + 16 * i + g + 8 * half < tokens) continue;
            for (int r = 0; r < n; ++r) s[i].at[half][r] = minus_infinity();
          }
        }
      }
      a.raise(s);
      unrolled<pages>([&](auto index) {
        const std::uint32_t data = ring + stage * Policy::stage_bytes;
        page_values<page>(data, s + index * page::tiles, lane, a);
        __syncwarp();
        stream.issue(data, barrier + 8 * stage, stream_policy, warp, lane);
        next_stage(stage, parity);
      });
    };
    // This warp's strand of split k of a part whose first token is at `position`; returns the
    // blocks of the split.
    const auto visit_pages = [&](auto page_type, const part_plan& part, int k, int position) {
      using page = decltype(page_type);
      const int stop = min(part.blocks, (k + 1) * part.blocks_per_split);
      for (int block = k * part.blocks_per_split + warp; block < stop; block += decode_warps) {
        const int token = block * spec::tokens_per_block;
        constexpr std::integral_constant<int, page::pages_of_block> whole;
        if constexpr (page::pages_of_block == 2) {
          if (token + page::tokens >= part.tokens) {  // the last block, of one page
            visit_block(page{}, std::integral_constant<int, 1>{}, token, position, part.tokens);
            continue;
          }
        }
        visit_block(page{}, whole, token, position, part.tokens);
      }
      finish_pages<page>(a, lane);
      return stop - k * part.blocks_per_split;
    };

    for (int k = k0; k < k1; ++k) {
      a = {};
      int blocks;  // of this split: strands without one take no part
      const bool from_recent = k >= page_splits;
      if (k < plan.first.splits) {
        blocks = visit_pages(layout{}, plan.first, k, 0);
      } else if (Policy::tiers && !from_recent) {
        blocks = visit_pages(typename Policy::low_layout{}, plan.low, k - plan.first.splits,
                             plan.first.tokens);
      } else {
        blocks = (plan.recent + spec::tokens_per_recent_block - 1) / spec::tokens_per_recent_block;
        recent_strand<Policy>(p, head, plan.first.tokens + plan.low.tokens, plan.recent, warp, lane,
                              a, scores, keep_policy);
      }

      // Strands meet in shared memory.
      __syncthreads();  // what was there has been read
      if (warp < blocks) {
        if (g == 0) {
          for (int r = 0; r < 2; ++r) {  // padding queries: anything defined
            meet.m[warp][n == 2 ? 2 * t + r : t + 4 * r] = a.m[r % n];
            meet.l[warp][n == 2 ? 2 * t + r : t + 4 * r] = a.l[r % n];
          }
        }
        // Rows of a result are channels g and g + 8 of the group; recent_strand has its own order.
        const int row = from_recent ? recent_channel(g) : g, half_step = from_recent ? 2 : 8;
        unrolled<Policy::groups>([&](auto group_index) {
          constexpr int j = decltype(group_index)::value;
          for (int half = 0; half < 2; ++half) {
            for (int r = 0; r < n; ++r) {
              const int query = Policy::lane_query(t, r);
              if (query < ratio)
                sums[(warp * ratio + query) * stride + 16 * j + row + half_step * half] =
                    a.o[j][2 * half + r];
            }
          }
        });
      }
      __syncthreads();
      merge(k, min(decode_warps, blocks));
    }
    if (whole_head) continue;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned arriving = static_cast<unsigned>(k1 - k0);
      last_arriver =
          atomicAdd(p.tickets + head, arriving) + arriving == static_cast<unsigned>(splits);
      if (last_arriver) p.tickets[head] = 0;
    }
    __syncthreads();
    if (!last_arriver) continue;
    __threadfence();
    fold_partials<Policy>(p, head, splits, sums, out, state);
  }
}

}  // namespace kvproof::gpu
