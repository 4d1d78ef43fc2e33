// Demotion K8V4 -> K4V2: listed tokens of one cache are written to another
// (reference/spec/kv_formats.md section 7). Codes and scales only: nothing is decoded.
// Grid: x = KV head, y = page of the written range, z = sequence. A warp makes a unit of the page,
// K and V: 16 tokens at head_dim 128, 32 at 64. Both layouts give a lane the same (token, channel)
// positions, so a lane loads the 4-byte (K) and 8-byte (V) words that hold its codes, for any
// list of tokens; neighbours in the list hit the same sectors. Codes are narrowed two or four at a
// time in a register. Memory binds (gpu/README.md).
#pragma once

#include "gpu/kernels/quantize_kernel.cuh"

namespace kvproof::gpu {

// The second and fourth byte of a, each followed by the same of b.
__device__ __forceinline__ std::uint32_t upper_bytes(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x7351);
}

// Words of two K8 fragments -> of the K4 fragment that has the first in the low nibbles, the second
// in the high ones. (15 c + 135) / 256 is floor((c + 8) / 17), in the upper byte of a half; sixteen
// times that is the high nibble.
__device__ __forceinline__ std::uint32_t narrow_keys(std::uint32_t a, std::uint32_t b) {
  const auto nibbles = [](std::uint32_t x, std::uint32_t y) {  // of two codes each, one a half
    return select_bits(0x0f000f00u, x * 15u + 0x00870087u, y * 240u + 0x08700870u);
  };
  const std::uint32_t even = nibbles(a & 0x00ff00ffu, b & 0x00ff00ffu);
  const std::uint32_t odd = nibbles(__byte_perm(a, 0, 0x4341), __byte_perm(b, 0, 0x4341));
  return upper_bytes(even, odd);
}

// Four codes a half -> their V2 codes in the half's upper byte. (3 c + 9) / 16 is floor((c + 2) /
// 5); four times that puts the second code of a byte above the first.
__device__ __forceinline__ std::uint32_t narrow_value_fours(std::uint32_t w) {
  const std::uint32_t even = (w & 0x0f0f0f0fu) * 3u + 0x09090909u;
  const std::uint32_t odd = (w >> 4 & 0x0f0f0f0fu) * 12u + 0x24242424u;
  const std::uint32_t pairs = select_bits(0x30303030u, even, odd);  // in the upper half of a byte
  return select_bits(0xf000f000u, pairs, pairs << 4);
}
// Words of two V4 fragments (groups 0 to 3 and 4 to 7) -> of one V2 fragment.
__device__ __forceinline__ std::uint32_t narrow_values(std::uint32_t a, std::uint32_t b) {
  return upper_bytes(narrow_value_fours(a), narrow_value_fours(b));
}

// A listed token: its page and slot; slot -1: not written, reads as zeros.
struct demoted_token {
  const unsigned char* page;
  int slot;
  [[nodiscard]] __device__ __forceinline__ int tile() const { return slot >> 4; }
  [[nodiscard]] __device__ __forceinline__ int tt() const { return slot & 15; }
};

template <int HeadDim>
struct token_list {
  using from = page_layout<spec::format_id::k8v4, HeadDim>;
  const unsigned char* pages;
  std::int32_t page_id, slot;  // of token first_slot + lane of the unit

  [[nodiscard]] __device__ __forceinline__ demoted_token at(int token) const {
    const std::int64_t id = __shfl_sync(~0u, page_id, token);
    return {pages + id * from::bytes, __shfl_sync(~0u, slot, token)};
  }
};

// Codes of channels 2t, 2t + 1, 2t + 8, 2t + 9 of the first (x) and the second group (y) of K8
// fragment `fragment` of the token's tile.
template <class From>
__device__ __forceinline__ uint2 load_keys(const demoted_token& from, int fragment, int t) {
  if (from.slot < 0) return make_uint2(0, 0);
  const int index = from.tile() * From::key_fragments_of_tile + fragment;
  const auto* const at =
      reinterpret_cast<const std::uint32_t*>(from.page + index * From::fragment_bytes +
                                             16 * (4 * (from.tt() & 7) + t) + from.tt() / 8 * 4);
  return make_uint2(__ldg(at), __ldg(at + 2));
}
// Words with the token's codes of channels g (x) and g + 8 (y) of four groups, in one of the
// halves.
template <class From>
__device__ __forceinline__ uint2 load_values(const demoted_token& from, int fragment, int g) {
  if (from.slot < 0) return make_uint2(0, 0);
  const int index = From::value_fragment(from.tile(), 0) + fragment, tt = from.tt();
  return __ldg(reinterpret_cast<const uint2*>(from.page + From::value_offset +
                                              index * From::fragment_bytes) +
               2 * (4 * g + (tt & 7) / 2) + tt / 8);
}

template <int HeadDim>
__device__ __forceinline__ void demote(const demote_params& p) {
  using from = page_layout<spec::format_id::k8v4, HeadDim>;
  using to = page_layout<spec::format_id::k4v2, HeadDim>;
  constexpr int slots = unit_tokens(HeadDim);
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  const int first = p.first_token[head], count = p.num_tokens[head];
  const int page = first / to::tokens + static_cast<int>(blockIdx.y);
  quantize_unit u;
  u.lane = threadIdx.x % 32;
  u.first_slot = static_cast<int>(threadIdx.x / 32) * slots;
  u.begin = max(first - page * to::tokens, 0);
  u.end = min(first + count - page * to::tokens, to::tokens);
  u.is_new = u.begin == 0 && p.replace == 0;
  u.rows = 0;
  if (u.begin >= u.end) return;  // the range ends before this page
  if (!u.is_new && (u.first_slot >= u.end || u.first_slot + slots <= u.begin)) return;
  u.page =
      p.to_pages + static_cast<std::int64_t>(p.to_table[head * p.max_to_pages + page]) * to::bytes;

  token_list<HeadDim> list{p.from_pages, 0, -1};
  const int my_slot = u.first_slot + u.lane;
  if (u.lane < slots && my_slot >= u.begin && my_slot < u.end) {
    const std::int64_t index = static_cast<std::int64_t>(page) * to::tokens + my_slot - first;
    const int token = p.tokens[head * p.max_tokens + index];
    list.page_id = p.from_table[head * p.max_from_pages + token / from::tokens];
    list.slot = token % from::tokens;
  }

  const int g = u.lane / 4, t = u.lane % 4;
  constexpr bool two_tiles = HeadDim == 64;  // of a unit: K fragment or half of a V field list
  uint2 keys[2][2][2];                       // [K4 fragment][p][K8 fragment of the two]
#pragma unroll
  for (int f = 0; f < 2; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const demoted_token token = list.at((two_tiles ? 16 * f : 0) + 8 * half + g);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        keys[f][half][i] = load_keys<from>(token, (two_tiles ? 0 : 2 * f) + i, t);
    }
  }
  uint2 values[2][2];  // [V4 fragment][p]: both tokens of a word
#pragma unroll
  for (int f = 0; f < 2; ++f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first_of_two = (two_tiles ? 16 * f : 0) + 8 * half + 2 * t;
      const demoted_token a = list.at(first_of_two), b = list.at(first_of_two + 1);
      const uint2 x = load_values<from>(a, two_tiles ? 0 : f, g);
      const uint2 y = load_values<from>(b, two_tiles ? 0 : f, g);
      const std::uint32_t halves =
          ((a.slot & 1) != 0 ? 0x32u : 0x10u) | ((b.slot & 1) != 0 ? 0x7600u : 0x5400u);
      values[f][half] = make_uint2(__byte_perm(x.x, y.x, halves), __byte_perm(x.y, y.y, halves));
    }
  }

  if (u.lane < slots && u.writes(my_slot)) {
    uint2 pairs = make_uint2(0, 0);  // {K scale, K zero}, {V scale, V zero}
    if (list.slot >= 0) {
      pairs = __ldg(reinterpret_cast<const uint2*>(
          list.pages + static_cast<std::int64_t>(list.page_id) * from::bytes + from::scale_offset +
          from::token_scale_byte(list.slot)));
    }
    const auto widened = [](std::uint32_t pair, float factor) {
      const std::uint16_t scale =
          __half_as_ushort(__float2half_rn(__fmul_rn(low_half(pair), factor)));
      return scale | (pair & 0xffff0000u);
    };
    store_8(u.page + to::scale_offset + to::token_scale_byte(my_slot), widened(pairs.x, 17.0f),
            widened(pairs.y, 5.0f));
  }

#pragma unroll
  for (int f = 0; f < 2; ++f) {
    std::uint32_t word[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      word[half] = narrow_keys(keys[f][half][0].x, keys[f][half][1].x);
      word[half + 2] = narrow_keys(keys[f][half][0].y, keys[f][half][1].y);
    }
    store_fragment<to::key_bits, false, to>(u, f, word);
  }
  std::uint32_t word[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    word[2 * half] = narrow_values(values[0][half].x, values[1][half].x);
    word[2 * half + 1] = narrow_values(values[0][half].y, values[1][half].y);
  }
  store_fragment<to::value_bits, true, to>(u, 0, word);
}

}  // namespace kvproof::gpu
