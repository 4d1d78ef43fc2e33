// Quantize + pack: appends tokens to pages (reference/spec/kv_formats.md sections 2 to 4).
// Grid: x = page of the appended range, y = (sequence, KV head); 128 threads. Codes of the page's
// new tokens are computed into shared memory, one byte each, then gathered into halves and stored:
// whole pages as 16-byte vectors when slot 0 is new, else only the halves (bytes, where two tiles
// share a half) of the new tokens.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/page_layout.cuh"

namespace kvproof::gpu {

constexpr int quantize_threads = 128;

__device__ __forceinline__ float half_value(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ std::uint16_t half_bits_of(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
__device__ __forceinline__ bool is_finite_half(std::uint16_t bits) {
  return (bits & 0x7c00u) != 0x7c00u;
}

// Scale and zero of a group from its extremes, and the code of an element.
struct group_scale {
  std::uint16_t scale, zero;
  float scale_value, zero_value;
};
template <int Bits>
__device__ __forceinline__ group_scale scale_of(float low, float high, bool finite) {
  constexpr float levels = (1 << Bits) - 1;
  if (!finite) return {0x7fff, 0x7fff, 0.0f, 0.0f};  // NaN, NaN; a scale of 0 makes all codes 0
  const float zero = __fadd_rn(low, 0.0f);           // -0 becomes +0
  const float top = __fadd_rn(high, 0.0f);           // so that a group of only -0 has scale +0
  const std::uint16_t scale = half_bits_of(__fdiv_rn(__fsub_rn(top, zero), levels));
  return {scale, half_bits_of(zero), half_value(scale), zero};
}
template <int Bits>
__device__ __forceinline__ std::uint8_t code_of(float x, const group_scale& g) {
  constexpr float levels = (1 << Bits) - 1;
  if (g.scale_value == 0.0f) return 0;
  const float steps = fminf(__fdiv_rn(__fsub_rn(x, g.zero_value), g.scale_value), levels);
  return static_cast<std::uint8_t>(__float2int_rn(steps));
}

template <class Layout>
struct quantize_scratch {
  std::uint8_t key_codes[Layout::tokens][Layout::head_dim];
  std::uint8_t value_codes[Layout::tokens][Layout::head_dim];
  alignas(16) unsigned char scales[Layout::bytes - Layout::scale_offset];
};

// Byte of a per-token quadruple, or of a group16 entry, from scale_offset.
__device__ __forceinline__ int token_scale_byte(int token) {
  return 128 * (token / 16) + 16 * (token & 7) + 8 * (token % 16 / 8);
}
template <class Layout>
__device__ __forceinline__ int pair_byte(int x, int group) {  // in(x) of section 3
  return ((x & 7) >> 1) * 16 + (group & 1) * 8 + (x >> 3) * 4 + (x & 1) * 2;
}
template <class Layout>
__device__ __forceinline__ void put_scale(quantize_scratch<Layout>& s, int byte,
                                          std::uint16_t bits) {
  *reinterpret_cast<std::uint16_t*>(s.scales + byte) = bits;
}

// One warp, one token: K or V, all channels share a scale.
template <int Bits, class Layout>
__device__ __forceinline__ group_scale quantize_row(const std::uint16_t* row, std::uint8_t* codes) {
  constexpr int per_lane = Layout::head_dim / 32;
  const int lane = threadIdx.x % 32;
  float x[per_lane];
  float low = __int_as_float(0x7f800000), high = __int_as_float(0xff800000);
  bool finite = true;
  for (int i = 0; i < per_lane; ++i) {
    const std::uint16_t bits = row[per_lane * lane + i];
    finite = finite && is_finite_half(bits);
    x[i] = half_value(bits);
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
  }
  for (int step = 16; step > 0; step /= 2) {
    low = fminf(low, __shfl_xor_sync(~0u, low, step));
    high = fmaxf(high, __shfl_xor_sync(~0u, high, step));
  }
  finite = __all_sync(~0u, finite);
  const group_scale g = scale_of<Bits>(low, high, finite);
  for (int i = 0; i < per_lane; ++i) codes[per_lane * lane + i] = code_of<Bits>(x[i], g);
  return g;
}

// A half of a fragment: the codes of all its fields. K: row = token, column = channel; V: the other
// way round.
template <int Bits, bool Value, class Layout>
__device__ __forceinline__ std::uint16_t gather_half(const quantize_scratch<Layout>& s,
                                                     int fragment, int row, int col) {
  constexpr int fields = 16 / Bits;
  std::uint32_t half = 0;
  for (int f = 0; f < fields; ++f) {
    const int u = fragment * fields + f, tile = u / Layout::groups, group = u % Layout::groups;
    const std::uint32_t code = Value ? s.value_codes[16 * tile + col][16 * group + row]
                                     : s.key_codes[16 * tile + row][16 * group + col];
    half |= code << (Bits * f);
  }
  return static_cast<std::uint16_t>(half);
}
__device__ __forceinline__ int fragment_byte(int row, int col) {  // w16 of section 3
  return (4 * (row & 7) + ((col & 7) >> 1)) * 16 + ((row >> 3) | (col >> 3) << 1) * 4 +
         (col & 1) * 2;
}

// All fragments of a side as 16-byte vectors.
template <int Bits, bool Value, class Layout>
__device__ void store_all_codes(const quantize_scratch<Layout>& s, unsigned char* region) {
  constexpr int vectors = Layout::tokens * Layout::head_dim * Bits / 8 / 16;
  for (int i = threadIdx.x; i < vectors; i += quantize_threads) {
    const int fragment = i / 32, lane = i % 32;
    std::uint32_t word[4];
    for (int r = 0; r < 4; ++r) {
      const int row = lane / 4 + 8 * (r & 1), col = 2 * (lane % 4) + 8 * (r >> 1);
      word[r] =
          gather_half<Bits, Value, Layout>(s, fragment, row, col) |
          static_cast<std::uint32_t>(gather_half<Bits, Value, Layout>(s, fragment, row, col + 1))
              << 16;
    }
    reinterpret_cast<uint4*>(region)[i] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// Only the halves (or bytes) that hold codes of slots [begin, end).
template <int Bits, bool Value, class Layout>
__device__ void store_new_codes(const quantize_scratch<Layout>& s, unsigned char* region, int begin,
                                int end) {
  constexpr int fields = 16 / Bits;
  constexpr int fragments_per_tile =
      Layout::groups / fields;  // 0: two tiles share a half, a byte each
  constexpr int halves = 16 * (fragments_per_tile > 0 ? fragments_per_tile : 1);  // of one token
  for (int i = threadIdx.x; i < (end - begin) * halves; i += quantize_threads) {
    const int token = begin + i / halves, tile = token / 16, tt = token % 16, cc = i % 16;
    const int fragment = tile * Layout::groups / fields + i % halves / 16;
    const int row = Value ? cc : tt, col = Value ? tt : cc;
    unsigned char* const at = region + fragment * Layout::fragment_bytes + fragment_byte(row, col);
    const std::uint16_t half = gather_half<Bits, Value, Layout>(s, fragment, row, col);
    if constexpr (fragments_per_tile > 0) {
      *reinterpret_cast<std::uint16_t*>(at) = half;
    } else {
      static_assert(fragments_per_tile > 0 || Bits * Layout::groups == 8,
                    "a tile owns a byte of the half");
      at[tile % 2] = static_cast<unsigned char>(half >> (8 * (tile % 2)));
    }
  }
}

template <spec::format_id Format, int HeadDim>
__device__ void quantize(const quantize_params& p) {
  using layout = page_layout<Format, HeadDim>;
  __shared__ quantize_scratch<layout> s;
  const std::int64_t head = blockIdx.y;
  const int first = p.first_token[head], count = p.num_new[head];
  const int page = first / layout::tokens + static_cast<int>(blockIdx.x);
  const int begin = max(first - page * layout::tokens, 0);
  const int end = min(first + count - page * layout::tokens, layout::tokens);
  if (begin >= end) return;  // the range ends before this page

  for (int i = threadIdx.x; i < static_cast<int>(sizeof s) / 16; i += quantize_threads) {
    reinterpret_cast<uint4*>(&s)[i] = make_uint4(0, 0, 0, 0);
  }
  static_assert(sizeof s % 16 == 0, "cleared as vectors");
  __syncthreads();

  const std::int64_t offset =
      head / p.kv_heads * p.stride_batch + head % p.kv_heads * p.stride_head;
  const std::int64_t row0 =
      static_cast<std::int64_t>(page) * layout::tokens - first;  // source row of slot 0
  const auto key_row = [&](int slot) { return p.k + offset + (row0 + slot) * p.stride_token; };
  const auto value_row = [&](int slot) { return p.v + offset + (row0 + slot) * p.stride_token; };

  if constexpr (layout::per_token) {
    for (int slot = begin + threadIdx.x / 32; slot < end; slot += quantize_threads / 32) {
      const group_scale k =
          quantize_row<layout::key_bits, layout>(key_row(slot), s.key_codes[slot]);
      const group_scale v =
          quantize_row<layout::value_bits, layout>(value_row(slot), s.value_codes[slot]);
      if (threadIdx.x % 32 == 0) {
        const int byte = token_scale_byte(slot);
        put_scale(s, byte, k.scale);
        put_scale(s, byte + 2, k.zero);
        put_scale(s, byte + 4, v.scale);
        put_scale(s, byte + 6, v.zero);
      }
    }
  } else {
    // K: one thread a (tile, channel), 16 tokens.
    for (int i = threadIdx.x; i < (end - begin) / 16 * HeadDim; i += quantize_threads) {
      const int tile = begin / 16 + i / HeadDim, channel = i % HeadDim, group = channel / 16;
      float x[16];
      float low = __int_as_float(0x7f800000), high = __int_as_float(0xff800000);
      bool finite = true;
      for (int t = 0; t < 16; ++t) {
        const std::uint16_t bits = key_row(16 * tile + t)[channel];
        finite = finite && is_finite_half(bits);
        x[t] = half_value(bits);
        low = fminf(low, x[t]);
        high = fmaxf(high, x[t]);
      }
      const group_scale g = scale_of<layout::key_bits>(low, high, finite);
      for (int t = 0; t < 16; ++t)
        s.key_codes[16 * tile + t][channel] = code_of<layout::key_bits>(x[t], g);
      const int in = pair_byte<layout>(channel % 16, group);
      put_scale(s, layout::tile_scale_bytes * tile + 64 * (group / 2) + in, g.scale);
      put_scale(s,
                layout::key_zero_offset - layout::scale_offset + 256 * (group / 2) + 64 * tile + in,
                g.zero);
    }
    // V: one thread a (token, group of 16 channels), 32 bytes.
    for (int i = threadIdx.x; i < (end - begin) * layout::groups; i += quantize_threads) {
      const int slot = begin + i / layout::groups, group = i % layout::groups, tile = slot / 16,
                tt = slot % 16;
      const std::uint16_t* const row = value_row(slot) + 16 * group;
      float x[16];
      float low = __int_as_float(0x7f800000), high = __int_as_float(0xff800000);
      bool finite = true;
      for (int c = 0; c < 16; ++c) {
        const std::uint16_t bits = row[c];
        finite = finite && is_finite_half(bits);
        x[c] = half_value(bits);
        low = fminf(low, x[c]);
        high = fmaxf(high, x[c]);
      }
      const group_scale g = scale_of<layout::value_bits>(low, high, finite);
      for (int c = 0; c < 16; ++c)
        s.value_codes[slot][16 * group + c] = code_of<layout::value_bits>(x[c], g);
      put_scale(s,
                layout::value_scale_offset - layout::scale_offset +
                    layout::tile_scale_bytes * tile + 64 * (group / 2) +
                    pair_byte<layout>(tt, group),
                g.scale);
      put_scale(s,
                layout::value_zero_offset - layout::scale_offset + layout::tile_scale_bytes * tile +
                    8 * (4 * group + ((tt & 7) >> 1)) + 4 * (tt >> 3) + 2 * (tt & 1),
                g.zero);
    }
  }
  __syncthreads();

  const std::int64_t id = p.page_table[head * p.max_pages + page];
  unsigned char* const to = p.pages + id * layout::bytes;
  constexpr int scale_bytes = layout::bytes - layout::scale_offset;
  if (begin == 0) {
    store_all_codes<layout::key_bits, false, layout>(s, to);
    store_all_codes<layout::value_bits, true, layout>(s, to + layout::value_offset);
    for (int i = threadIdx.x; i < scale_bytes / 16; i += quantize_threads) {
      reinterpret_cast<uint4*>(to + layout::scale_offset)[i] =
          reinterpret_cast<const uint4*>(s.scales)[i];
    }
    return;
  }
  store_new_codes<layout::key_bits, false, layout>(s, to, begin, end);
  store_new_codes<layout::value_bits, true, layout>(s, to + layout::value_offset, begin, end);
  if constexpr (layout::per_token) {
    for (int i = threadIdx.x; i < (end - begin) * 4; i += quantize_threads) {
      const int byte = token_scale_byte(begin + i / 4) + 2 * (i % 4);
      *reinterpret_cast<std::uint16_t*>(to + layout::scale_offset + byte) =
          *reinterpret_cast<const std::uint16_t*>(s.scales + byte);
    }
  } else {
    // Whole tiles: each half belongs to a tile by its place in the region.
    for (int i = threadIdx.x; i < scale_bytes / 2; i += quantize_threads) {
      const int byte = 2 * i, region = byte / (8 * HeadDim), inside = byte % (8 * HeadDim);
      const int tile = region == 1 ? inside % 256 / 64 : inside / layout::tile_scale_bytes;
      if (16 * tile < begin || 16 * tile >= end) continue;
      *reinterpret_cast<std::uint16_t*>(to + layout::scale_offset + byte) =
          *reinterpret_cast<const std::uint16_t*>(s.scales + byte);
    }
  }
}

}  // namespace kvproof::gpu
