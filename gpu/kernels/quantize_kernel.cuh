// Quantize + pack: appends tokens to pages (reference/spec/kv_formats.md sections 2 to 4).
// Grid: x = KV head, y = page of the appended range, z = sequence: CTAs that run together read
// whole token rows. A CTA is a page; a warp is a unit of one side (K or V): 2048 elements, 16
// tokens at head_dim 128, 32 at 64. Warps do not talk to each other.
//
// A unit's rows are copied to shared memory at once (4 KB a warp in flight), read back as the
// fragments that the page stores, and packed in registers: one 16-byte vector a lane is a fragment.
// "Pair" J = 0..7 counts a unit's (tile, channel group). Halves (V, int2_g16): fragment J / F,
// field J % F of the unit. Bytes (K of the per-token formats): two pairs make a fragment of 8-bit
// codes, four one of 4-bit codes, the second two in the high nibbles.
//
// Per-token formats: lane 4g + t reads 8x8 matrices. K: tokens g, g + 8 and channel pairs 2t; V,
// transposed: token pairs 2t, 2t + 8 and channels g, g + 8 of each group; these are the codes of
// the words that the lane stores. Extremes go through shuffles that halve the number of tokens a
// lane keeps; each lane makes one token's scale.
// int2_g16: lane 4J + t owns four whole groups (K: channels 2t, 2t + 1, 2t + 8, 2t + 9 of group J;
// V: these tokens), packs its own codes, and eight lanes exchange them as a bit transposition.
//
// Instructions an element (sm_90a, head_dim 128, whole units, counted in the SASS): k8v4 10.4, k4v2
// 10.4, int2_g16 12.1; gathered rows 1 more. 5.2 of them make the code (convert, subtract, three to
// divide and round), 0.8 pack it, the rest finds extremes, makes scales, loads and stores. A third
// runs on the half-rate integer pipe. At 4.5 TB/s and 1.75 GHz an SM has 18, 16 and 16 issue slots.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/page_layout.cuh"
#include "gpu/kernels/page_units.hpp"
#include "gpu/kernels/ptx.cuh"
#include "gpu/kernels/quantize_arithmetic.hpp"
#include "gpu/kernels/row_stage.cuh"

namespace kvproof::gpu {

struct device_ops {
  static __device__ __forceinline__ float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
  }
  static __device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
  static __device__ __forceinline__ std::uint32_t bits(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ float from_bits(std::uint32_t x) { return __uint_as_float(x); }
};

constexpr std::uint32_t sign_bits = 0x80008000u;
constexpr std::uint32_t low_halves = 0x5410, high_halves = 0x7632;  // of two words, __byte_perm

// Scale and zero of a group, and what turns its elements into codes.
struct group_scale {
  std::uint32_t stored;  // scale, zero << 16
  float zero;
  reciprocal by;  // 0 where all codes are 0
  bool careful;   // quotients must be limited, or are not finite
};
// Short: the scale is rounded to 6 significant bits (keys of int2_g16).
template <int Bits, bool Short = false>
__device__ __forceinline__ group_scale scale_of(float low, float high) {
  constexpr int levels = (1 << Bits) - 1;
  const float zero = __fadd_rn(low, 0.0f);   // -0 becomes +0
  const float top = __fadd_rn(high, 0.0f);   // so that a group of only -0 has scale +0
  const float range = __fsub_rn(top, zero);  // neither finite nor NaN-free: the group is not
  const bool finite = range < __int_as_float(0x7f800000);
  std::uint32_t pair = pack_halves(step_of<levels, device_ops>(range), zero);
  if constexpr (Short)
    pair = (pair + 15 + (pair >> 5 & 1)) & ~31u;  // scale below infinity: no carry
  const std::uint32_t scale = pair & 0xffffu;
  // A subnormal scale that was rounded down can be too small for its range by so much.
  constexpr std::uint32_t least_sure = Short ? 128 : levels + 1;
  group_scale g;
  g.careful = !finite || scale - 1u < least_sure - 1;
  g.stored = finite ? pair : 0x7fff7fffu;
  g.zero = zero;
  g.by = reciprocal_of<device_ops>(low_half(pair));
  if (!finite || scale == 0) g.by = {0.0f, 0.0f};
  return g;
}
// Extremes packed as {min, -max}.
template <int Bits>
__device__ __forceinline__ group_scale scale_of(std::uint32_t extremes) {
  return scale_of<Bits>(low_half(extremes), -high_half(extremes));
}

// The code in the low bits, bits of rounding_shift above them (none in the low 16 bits of the word,
// nor after a shift to the left).
template <int Bits, bool Careful>
__device__ __forceinline__ std::uint32_t code_of(float x, float zero, reciprocal by) {
  float q = quotient<device_ops>(__fsub_rn(x, zero), by);
  if constexpr (Careful) {
    q = by.high == 0.0f ? 0.0f : fminf(q, static_cast<float>((1 << Bits) - 1));
  }
  return __float_as_uint(__fadd_rn(q, rounding_shift));
}

// What a warp works on.
struct quantize_unit {
  int lane;
  int first_slot;      // of the unit in its page
  int begin, end;      // slots of the page that are written
  std::uint32_t rows;  // shared address
  unsigned char* page;
  bool is_new;  // the page's slot 0 is written: so are all its bytes

  [[nodiscard]] __device__ __forceinline__ bool writes(int slot) const {
    return is_new || (slot >= begin && slot < end);
  }
};

// Stores fragment `fragment` of the unit: a 16-byte vector a lane, or in pages that are not new
// only the bytes of written tokens.
template <int Bits, bool Value, class Layout>
__device__ __forceinline__ void store_fragment(const quantize_unit& u, int fragment,
                                               const std::uint32_t (&word)[4]) {
  constexpr int fields = 16 / Bits, slots = unit_tokens(Layout::head_dim);
  const int index = u.first_slot / slots * (8 / fields) + fragment;
  unsigned char* const to =
      u.page + (Value ? Layout::value_offset : 0) + index * Layout::fragment_bytes + 16 * u.lane;
  if (u.is_new || (u.first_slot >= u.begin && u.first_slot + slots <= u.end)) {
    *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    return;
  }
  constexpr bool two_tiles = fields > Layout::groups;  // in a half, a byte each
  const int first = u.first_slot + (two_tiles ? 0 : 16 * (fragment * fields / Layout::groups));
  for (int r = 0; r < 4; ++r) {
    if constexpr (!Value && !two_tiles) {  // a word is of one token
      const int slot = first + u.lane / 4 + 8 * (r & 1);
      if (u.writes(slot)) reinterpret_cast<std::uint32_t*>(to)[r] = word[r];
    } else {
      for (int h = 0; h < 2; ++h) {
        const int slot =
            first + (Value ? 2 * (u.lane % 4) + h + 8 * (r >> 1) : u.lane / 4 + 8 * (r & 1));
        const std::uint32_t half = word[r] >> (16 * h);
        unsigned char* const at = to + 4 * r + 2 * h;
        if constexpr (two_tiles) {
          if (u.writes(slot)) at[0] = static_cast<unsigned char>(half);
          if (u.writes(slot + 16)) at[1] = static_cast<unsigned char>(half >> 8);
        } else {
          if (u.writes(slot)) {
            *reinterpret_cast<std::uint16_t*>(at) = static_cast<std::uint16_t>(half);
          }
        }
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Per-token formats

__device__ __forceinline__ std::uint32_t choose(bool second, std::uint32_t a, std::uint32_t b) {
  return second ? b : a;
}
// Lanes without the bit keep a, lanes with it b; the other is sent to the lane across.
__device__ __forceinline__ std::uint32_t keep_smaller(int lane, int bit, std::uint32_t a,
                                                      std::uint32_t b) {
  const bool second = (lane & bit) != 0;
  return min_halves(choose(second, a, b), __shfl_xor_sync(~0u, choose(second, b, a), bit));
}

// Which token of the unit a lane makes the scale of, and the lane that makes a token's.
// K: token 16 tile + 8 p + g; V: 16 tile + 8 p + 2t + odd.
template <bool Value, int HeadDim>
__device__ __forceinline__ int token_of_lane(int lane) {
  const int g = lane / 4, t = lane % 4;
  if (Value && HeadDim == 128) return 8 * (g >> 2) + 2 * t + (g >> 1 & 1);
  if (Value) return 16 * (g >> 2) + 8 * (g >> 1 & 1) + 2 * t + (g & 1);
  if (HeadDim == 128) return 8 * (t >> 1) + g;
  return 16 * (t >> 1) + 8 * (t & 1) + g;
}
template <bool Value, int HeadDim>
__device__ __forceinline__ int lane_of_token(int lane, int tile, int p, int odd) {
  const int g = lane / 4, t = lane % 4;
  if (Value && HeadDim == 128) return 4 * (4 * p + 2 * odd) + t;
  if (Value) return 4 * (4 * tile + 2 * p + odd) + t;
  if (HeadDim == 128) return 4 * g + 2 * p;
  return 4 * g + 2 * tile + p;
}

template <bool Value, int HeadDim>
struct token_matrices {
  static constexpr int tiles = 128 / HeadDim;  // of a unit
  std::uint32_t first;                         // the row that this lane names of pairs 0, 1 and p 0
  __device__ __forceinline__ explicit token_matrices(const quantize_unit& u)
      : first(row_stage<HeadDim>::place(u.rows, u.lane % 8, u.lane / 8)) {}
  // Pairs 2k and 2k + 1, tokens 8p .. 8p + 7 of their tile: x, y of pair 2k (channels 0-7, 8-15),
  // z, w of 2k + 1.
  [[nodiscard]] __device__ __forceinline__ uint4 load(int k, int p) const {
    using stage = row_stage<HeadDim>;
    constexpr int loads = HeadDim / 32;  // of a row
    return load_matrices<Value>(stage::step(first, 16 * (k / loads) + 8 * p, 4 * (k % loads)));
  }
};

// {min, -max} of the token of token_of_lane.
template <bool Value, int HeadDim>
__device__ __forceinline__ std::uint32_t token_extremes(const quantize_unit& u) {
  using matrices = token_matrices<Value, HeadDim>;
  constexpr int loads = HeadDim / 32;
  const matrices rows(u);
  // Of each (tile, p): packed minima and negated maxima. K: over channels of one token; V: of two.
  std::uint32_t low[matrices::tiles][2], high[matrices::tiles][2];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const uint4 m = rows.load(k, p);
      const std::uint32_t least = min_halves(min_halves(m.x, m.y), min_halves(m.z, m.w));
      const std::uint32_t most = max_halves(max_halves(m.x, m.y), max_halves(m.z, m.w));
      std::uint32_t &l = low[k / loads][p], &h = high[k / loads][p];
      l = k % loads == 0 ? least : min_halves(l, least);
      h = k % loads == 0 ? most : max_halves(h, most);
    }
  }
#pragma unroll
  for (int tile = 0; tile < matrices::tiles; ++tile) {
    high[tile][0] ^= sign_bits;
    high[tile][1] ^= sign_bits;
  }
  const int lane = u.lane;
  if constexpr (Value) {
    // Over g: the tile (head_dim 64), p, then one of the two tokens of a word.
    if constexpr (HeadDim == 64) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        low[0][p] = keep_smaller(lane, 16, low[0][p], low[1][p]);
        high[0][p] = keep_smaller(lane, 16, high[0][p], high[1][p]);
      }
    }
    constexpr int bit = HeadDim == 64 ? 8 : 16;
    const std::uint32_t l = keep_smaller(lane, bit, low[0][0], low[0][1]);
    const std::uint32_t h = keep_smaller(lane, bit, high[0][0], high[0][1]);
    const std::uint32_t x =
        keep_smaller(lane, bit / 2, __byte_perm(l, h, low_halves), __byte_perm(l, h, high_halves));
    return HeadDim == 64 ? x : keep_smaller(lane, 4, x, x);
  } else {
    std::uint32_t x[matrices::tiles][2];
#pragma unroll
    for (int tile = 0; tile < matrices::tiles; ++tile) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        x[tile][p] = min_halves(__byte_perm(low[tile][p], high[tile][p], low_halves),
                                __byte_perm(low[tile][p], high[tile][p], high_halves));
      }
    }
    // Over t: the tile (head_dim 64), then p.
    if constexpr (HeadDim == 64) {
      return keep_smaller(lane, 1, keep_smaller(lane, 2, x[0][0], x[1][0]),
                          keep_smaller(lane, 2, x[0][1], x[1][1]));
    } else {
      const std::uint32_t y = keep_smaller(lane, 2, x[0][0], x[0][1]);
      return keep_smaller(lane, 1, y, y);
    }
  }
}

struct element_rule {  // of one token
  float zero;
  reciprocal by;
};

template <int Bits, bool Value, bool Careful, class Layout>
__device__ __forceinline__ void pack_tokens(const quantize_unit& u, const group_scale& mine) {
  constexpr int head_dim = Layout::head_dim, fields = 16 / Bits, loads = head_dim / 32;
  using matrices = token_matrices<Value, head_dim>;
  const matrices rows(u);
  element_rule rule[2][2];  // [p][odd]; K: odd is not used
#pragma unroll
  for (int fragment = 0; fragment < 8 / fields; ++fragment) {
    std::uint32_t half[4][2] = {};  // of word r, low and high
#pragma unroll
    for (int k = fragment * fields / 2; k < (fragment + 1) * fields / 2; ++k) {
      if (k % loads == 0) {
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
          for (int odd = 0; odd < (Value ? 2 : 1); ++odd) {
            const int from = lane_of_token<Value, head_dim>(u.lane, k / loads, p, odd);
            rule[p][odd] = {
                __shfl_sync(~0u, mine.zero, from),
                {__shfl_sync(~0u, mine.by.high, from), __shfl_sync(~0u, mine.by.low, from)}};
          }
        }
      }
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const uint4 m = rows.load(k, p);
        const std::uint32_t word[4] = {m.x, m.y, m.z, m.w};
        const element_rule &first = rule[p][0], &second = rule[p][Value ? 1 : 0];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int group = i / 2, c8 = i % 2;  // pair 2k + group, channels 8 c8 .. of it
          const std::uint32_t a = code_of<Bits, Careful>(low_half(word[i]), first.zero, first.by);
          const std::uint32_t b =
              code_of<Bits, Careful>(high_half(word[i]), second.zero, second.by);
          if constexpr (Value) {  // a half a token
            const int r = c8 + 2 * p, shift = Bits * ((2 * k + group) % fields);
            half[r][0] += a << shift;
            half[r][1] += b << shift;
          } else {  // a half two bytes, of neighbouring channels
            const int r = p + 2 * group, shift = Bits * (k % (8 / Bits));
            half[r][c8] += (a << shift) + (b << (8 + shift));
          }
        }
      }
    }
    std::uint32_t word[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) word[r] = __byte_perm(half[r][0], half[r][1], low_halves);
    store_fragment<Bits, Value, Layout>(u, fragment, word);
  }
}

template <int Bits, bool Value, class Layout>
__device__ __forceinline__ void quantize_tokens(const quantize_unit& u) {
  const group_scale mine = scale_of<Bits>(token_extremes<Value, Layout::head_dim>(u));
  const int token = token_of_lane<Value, Layout::head_dim>(u.lane), slot = u.first_slot + token;
  constexpr int twin = Value ? 4 : 1;  // at head_dim 128 two lanes have one token
  if ((Layout::head_dim == 64 || (u.lane & twin) == 0) && u.writes(slot)) {
    *reinterpret_cast<std::uint32_t*>(u.page + Layout::scale_offset +
                                      Layout::token_scale_byte(slot) + (Value ? 4 : 0)) =
        mine.stored;
  }
  if (__any_sync(~0u, mine.careful)) {
    pack_tokens<Bits, Value, true, Layout>(u, mine);
  } else {
    pack_tokens<Bits, Value, false, Layout>(u, mine);
  }
}

// ---------------------------------------------------------------------------------------------
// int2_g16

// Eight lanes (4 J + t, J = 0..7) hold a word each of 2 x 8 two-bit fields. Lane J becomes lane of
// field i = J, with field J of every lane's word in place i.
__device__ __forceinline__ std::uint32_t transpose_fields(int lane, std::uint32_t x) {
#pragma unroll
  for (int step = 0; step < 3; ++step) {
    const int bit = 16 >> step, shift = 8 >> step;
    const std::uint32_t low = step == 0 ? 0x00ff00ffu : step == 1 ? 0x0f0f0f0fu : 0x33333333u;
    const bool second = (lane & bit) != 0;
    const std::uint32_t kept = second ? ~low : low;
    const std::uint32_t other = __shfl_xor_sync(~0u, x, bit);
    const std::uint32_t moved = __funnelshift_l(other, other, second ? 32 - shift : shift);
    x = (x & kept) | (moved & ~kept);
  }
  return x;
}

// 8 elements of two groups to a word: codes of `a` in the low half, of `b` in the high one.
struct code_pair {
  std::uint32_t a, b;
  __device__ __forceinline__ void add(int place, std::uint32_t x, std::uint32_t y) {
    a = place == 0 ? x : a + (x << (2 * place));
    b = place == 0 ? y : b + (y << (2 * place));
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t word() const {
    return __byte_perm(a, b, low_halves);
  }
};

// Words of 16 tokens and two channels -> words r = 2 c8 (tokens 0-7) and 2 c8 + 1.
template <bool Careful>
__device__ __forceinline__ void pack_channels(int lane, const std::uint32_t (&x)[16],
                                              const group_scale (&g)[2], std::uint32_t (&word)[2]) {
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    code_pair codes{};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      codes.add(i, code_of<2, Careful>(low_half(x[8 * p + i]), g[0].zero, g[0].by),
                code_of<2, Careful>(high_half(x[8 * p + i]), g[1].zero, g[1].by));
    }
    word[p] = transpose_fields(lane, codes.word());
  }
}

// Where a lane's scales lie: its pair's tile and group.
template <class Layout>
struct pair_place {
  int tile, group;  // of the page
  __device__ __forceinline__ pair_place(const quantize_unit& u)
      : tile(u.first_slot / 16 + u.lane / 4 / Layout::groups), group(u.lane / 4 % Layout::groups) {}
  [[nodiscard]] __device__ __forceinline__ int scale_byte(int t) const {
    return Layout::tile_scale_bytes * tile + 64 * (group / 2) + 16 * t + 8 * (group & 1);
  }
  [[nodiscard]] __device__ __forceinline__ int key_zero_byte(int t) const {
    return 256 * (group / 2) + 64 * tile + 16 * t + 8 * (group & 1);
  }
  [[nodiscard]] __device__ __forceinline__ int value_zero_byte(int t) const {
    return Layout::tile_scale_bytes * tile + 8 * (4 * group + t);
  }
};

__device__ __forceinline__ void store_8(unsigned char* to, std::uint32_t a, std::uint32_t b) {
  *reinterpret_cast<uint2*>(to) = make_uint2(a, b);
}

template <class Layout>
__device__ __forceinline__ void quantize_key_groups(const quantize_unit& u) {
  using stage = row_stage<Layout::head_dim>;
  const int pair = u.lane % 8;  // whose row this lane names for load_matrices
  const std::uint32_t first =
      stage::place(u.rows, 16 * (pair / Layout::groups) + u.lane / 8, 2 * (pair % Layout::groups));
  std::uint32_t word[4], scales[2], zeros[2];
#pragma unroll
  for (int c8 = 0; c8 < 2; ++c8) {
    std::uint32_t x[16];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 m = load_matrices<false>(stage::step(first, 4 * i, c8));
      x[4 * i] = m.x;
      x[4 * i + 1] = m.y;
      x[4 * i + 2] = m.z;
      x[4 * i + 3] = m.w;
    }
    std::uint32_t low = x[0], high = x[0];
#pragma unroll
    for (int i = 1; i < 16; ++i) {
      low = min_halves(low, x[i]);
      high = max_halves(high, x[i]);
    }
    const group_scale g[2] = {scale_of<2, true>(low_half(low), low_half(high)),
                              scale_of<2, true>(high_half(low), high_half(high))};
    scales[c8] = __byte_perm(g[0].stored, g[1].stored, low_halves);
    zeros[c8] = __byte_perm(g[0].stored, g[1].stored, high_halves);
    std::uint32_t packed[2];
    if (__any_sync(~0u, g[0].careful || g[1].careful)) {
      pack_channels<true>(u.lane, x, g, packed);
    } else {
      pack_channels<false>(u.lane, x, g, packed);
    }
    word[2 * c8] = packed[0];
    word[2 * c8 + 1] = packed[1];
  }
  store_fragment<2, false, Layout>(u, 0, word);
  const pair_place<Layout> place(u);
  if (!u.writes(16 * place.tile)) return;
  const int t = u.lane % 4;
  store_8(u.page + Layout::key_scale_offset + place.scale_byte(t), scales[0], scales[1]);
  store_8(u.page + Layout::key_zero_offset + place.key_zero_byte(t), zeros[0], zeros[1]);
}

// 16 channels of one token.
struct channel_row {
  std::uint32_t x[8];
};
__device__ __forceinline__ group_scale scale_of_row(const channel_row& r) {
  std::uint32_t low = r.x[0], high = r.x[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    low = min_halves(low, r.x[i]);
    high = max_halves(high, r.x[i]);
  }
  high ^= sign_bits;
  return scale_of<2>(
      min_halves(__byte_perm(low, high, low_halves), __byte_perm(low, high, high_halves)));
}
// Two tokens -> words r = 2p (channels 0-7) and 2p + 1.
template <bool Careful>
__device__ __forceinline__ void pack_rows(int lane, const channel_row (&r)[2],
                                          const group_scale (&g)[2], std::uint32_t (&word)[2]) {
#pragma unroll
  for (int c8 = 0; c8 < 2; ++c8) {
    code_pair codes{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t a = r[0].x[4 * c8 + i], b = r[1].x[4 * c8 + i];
      codes.add(2 * i, code_of<2, Careful>(low_half(a), g[0].zero, g[0].by),
                code_of<2, Careful>(low_half(b), g[1].zero, g[1].by));
      codes.add(2 * i + 1, code_of<2, Careful>(high_half(a), g[0].zero, g[0].by),
                code_of<2, Careful>(high_half(b), g[1].zero, g[1].by));
    }
    word[c8] = transpose_fields(lane, codes.word());
  }
}

template <class Layout>
__device__ __forceinline__ void quantize_value_groups(const quantize_unit& u) {
  using stage = row_stage<Layout::head_dim>;
  const int pair = u.lane / 4, t = u.lane % 4;
  const std::uint32_t first =
      stage::place(u.rows, 16 * (pair / Layout::groups) + 2 * t, 2 * (pair % Layout::groups));
  std::uint32_t word[4], scales[2], zeros[2];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    channel_row r[2];
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
#pragma unroll
      for (int c8 = 0; c8 < 2; ++c8) {
        const uint4 m = load_shared_16(stage::step(first, 8 * p + odd, c8));
        r[odd].x[4 * c8] = m.x;
        r[odd].x[4 * c8 + 1] = m.y;
        r[odd].x[4 * c8 + 2] = m.z;
        r[odd].x[4 * c8 + 3] = m.w;
      }
    }
    const group_scale g[2] = {scale_of_row(r[0]), scale_of_row(r[1])};
    scales[p] = __byte_perm(g[0].stored, g[1].stored, low_halves);
    zeros[p] = __byte_perm(g[0].stored, g[1].stored, high_halves);
    std::uint32_t packed[2];
    if (__any_sync(~0u, g[0].careful || g[1].careful)) {
      pack_rows<true>(u.lane, r, g, packed);
    } else {
      pack_rows<false>(u.lane, r, g, packed);
    }
    word[2 * p] = packed[0];
    word[2 * p + 1] = packed[1];
  }
  store_fragment<2, true, Layout>(u, 0, word);
  const pair_place<Layout> place(u);
  if (!u.writes(16 * place.tile)) return;
  store_8(u.page + Layout::value_scale_offset + place.scale_byte(t), scales[0], scales[1]);
  store_8(u.page + Layout::value_zero_offset + place.value_zero_byte(t), zeros[0], zeros[1]);
}

// ---------------------------------------------------------------------------------------------

// Starts the copies of a unit's rows; rows that are not written are zeros, which quantize to zero
// bytes. Source rows are numbered by the list of selected rows, where there is one.
template <int HeadDim, bool Gather>
__device__ __forceinline__ void copy_rows(const quantize_params& p, const quantize_unit& u,
                                          const std::uint16_t* from, std::int64_t first_row,
                                          const std::int32_t* selected) {
  using stage = row_stage<HeadDim>;
  constexpr int rows_at_once = 32 / stage::row_chunks;
  const int chunk = u.lane % stage::row_chunks, first_row_of_lane = u.lane / stage::row_chunks;
  const std::uint32_t to = stage::place(u.rows, first_row_of_lane, chunk);
  from += 8 * chunk;
  std::int32_t listed = 0;
  if constexpr (Gather) {
    const int slot = u.first_slot + u.lane;
    if (u.lane < stage::rows && slot >= u.begin && slot < u.end)
      listed = selected[first_row + slot];
  } else {
    from += (first_row + u.first_slot + first_row_of_lane) * p.stride_token;
  }
  const bool all = u.first_slot >= u.begin && u.first_slot + stage::rows <= u.end;
#pragma unroll
  for (int i = 0; i < stage::rows / rows_at_once; ++i) {
    const int row = i * rows_at_once;
    const std::uint16_t* source = from;
    if constexpr (Gather) {
      source += std::int64_t{__shfl_sync(~0u, listed, row + first_row_of_lane)} * p.stride_token;
    } else {
      from += rows_at_once * p.stride_token;
    }
    if (all) {
      copy_chunk(stage::step(to, row, 0), source);
    } else {
      const int slot = u.first_slot + row + first_row_of_lane;
      const bool wanted = slot >= u.begin && slot < u.end;
      copy_chunk_if(wanted, stage::step(to, row, 0), wanted ? source : p.k);
    }
  }
}

template <spec::format_id Format, int HeadDim, bool Gather>
__device__ __forceinline__ void quantize(const quantize_params& p) {
  using layout = page_layout<Format, HeadDim>;
  constexpr int units = units_of_page(Format, HeadDim), slots = unit_tokens(HeadDim);
  __shared__ alignas(256) unsigned char rows[2 * units * row_stage<HeadDim>::bytes];
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  const int first = p.first_token[head], count = p.num_new[head];
  const int page = first / layout::tokens + static_cast<int>(blockIdx.y);
  const int warp = threadIdx.x / 32;
  const bool value = warp >= units;
  quantize_unit u;
  u.lane = threadIdx.x % 32;
  u.first_slot = warp % units * slots;
  u.begin = max(first - page * layout::tokens, 0);
  u.end = min(first + count - page * layout::tokens, layout::tokens);
  u.is_new = u.begin == 0;
  if (u.begin >= u.end) return;  // the range ends before this page
  if (!u.is_new && (u.first_slot >= u.end || u.first_slot + slots <= u.begin)) return;
  u.rows = shared_address(rows) + static_cast<std::uint32_t>(warp * row_stage<HeadDim>::bytes);

  const std::int64_t offset = blockIdx.z * p.stride_batch + blockIdx.x * p.stride_head;
  const std::int64_t first_row =
      static_cast<std::int64_t>(page) * layout::tokens - first;  // source row of slot 0
  const std::int32_t* const selected = Gather ? p.selected + head * p.max_selected : nullptr;
  copy_rows<HeadDim, Gather>(p, u, (value ? p.v : p.k) + offset, first_row, selected);
  u.page =
      p.pages + static_cast<std::int64_t>(p.page_table[head * p.max_pages + page]) * layout::bytes;
  wait_for_copies();

  if constexpr (layout::per_token) {
    if (value) {
      quantize_tokens<layout::value_bits, true, layout>(u);
    } else {
      quantize_tokens<layout::key_bits, false, layout>(u);
    }
  } else {
    if (value) {
      quantize_value_groups<layout>(u);
    } else {
      quantize_key_groups<layout>(u);
    }
  }
}

}  // namespace kvproof::gpu
