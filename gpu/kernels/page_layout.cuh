// A page as the kernels see it (reference/spec/kv_formats.md sections 3 and 5): byte offsets of its
// regions and how a field of packed codes becomes an fp16 operand by shift and mask.
#pragma once

#include <cstdint>

#include "reference/spec/attention_plan.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

template <spec::format_id Format, int HeadDim>
struct page_layout {
  static constexpr int head_dim = HeadDim;
  static constexpr int tokens = spec::format_of(Format).tokens_per_page;
  static constexpr int tiles = tokens / spec::tokens_per_tile;
  static constexpr int pages_of_block = spec::tokens_per_block / tokens;
  static constexpr int groups = HeadDim / 16;  // of 16 channels
  static constexpr int key_bits = spec::format_of(Format).key_bits;
  static constexpr int value_bits = spec::format_of(Format).value_bits;
  static constexpr bool per_token = spec::format_of(Format).scales == spec::scale_layout::per_token;
  static constexpr int key_fields = 16 / key_bits;  // codes in a half
  static constexpr int value_fields = 16 / value_bits;

  static constexpr int fragment_bytes = 512;
  static constexpr int value_offset = tokens * HeadDim * key_bits / 8;
  static constexpr int scale_offset = value_offset + tokens * HeadDim * value_bits / 8;
  // per_token: 8 bytes a token from scale_offset: {ks, kz, vs, vz}.
  // group16: four regions of 8 * HeadDim bytes.
  static constexpr int key_scale_offset = scale_offset;
  static constexpr int key_zero_offset = scale_offset + 8 * HeadDim;
  static constexpr int value_scale_offset = scale_offset + 16 * HeadDim;
  static constexpr int value_zero_offset = scale_offset + 24 * HeadDim;
  static constexpr int tile_scale_bytes = 2 * HeadDim;  // group16: of one tile in one region

  // per_token: where a token's quadruple starts, from scale_offset.
  static __device__ __forceinline__ int token_scale_byte(int token) {
    return 128 * (token / 16) + 16 * (token & 7) + 8 * (token % 16 / 8);
  }

  // From page to page, and what of it is in use.
  static constexpr int bytes =
      static_cast<int>(spec::page_size_bytes(spec::format_of(Format), HeadDim));
  static constexpr int content_bytes =
      static_cast<int>(spec::page_content_bytes(spec::format_of(Format), HeadDim));
  static_assert(bytes % 128 == 0, "pages are copied in bulk and stay 128-byte aligned");
  static_assert(content_bytes % 128 == 0, "pages lie back to back in shared memory");

  // per_token: K lies in byte fragments of 16 tokens by 32 channels, two in one if of 4 bits.
  static constexpr int key_fragments_of_tile = HeadDim * key_bits / 256;

  // Fragment and field of a tile's channel group: linear index tile * groups + group.
  static constexpr int key_fragment(int tile, int group) {
    return (tile * groups + group) / key_fields;
  }
  static constexpr int key_field(int tile, int group) {
    return (tile * groups + group) % key_fields;
  }
  static constexpr int value_fragment(int tile, int group) {
    return (tile * groups + group) / value_fields;
  }
  static constexpr int value_field(int tile, int group) {
    return (tile * groups + group) % value_fields;
  }
};

// Where a field stands after its shift: the operand is code * 2^(position - 24).
template <int Bits, bool Value, int HeadDim>
constexpr int operand_position(int field) {
  if (Bits == 4) return 2 + 4 * (field % 2);
  if (HeadDim == 64) return 4 + 2 * (field % 2);
  return 4 + 2 * (field < 2 ? field : field < 5 ? field - 2 : field - 5);
}
// e of section 5: the operand is code * 2^-e.
template <int Bits, bool Value, int HeadDim>
constexpr int operand_exponent(int field) {
  return 24 - operand_position<Bits, Value, HeadDim>(field);
}

// Two codes (both halves of the word) as two fp16 numbers. The shifts are shared by neighbouring
// fields.
template <int Bits, bool Value, int HeadDim, int Field>
__device__ __forceinline__ std::uint32_t operand_of(std::uint32_t w) {
  constexpr std::uint32_t half_mask = ((1u << Bits) - 1)
                                      << operand_position<Bits, Value, HeadDim>(Field);
  constexpr std::uint32_t mask = half_mask | half_mask << 16;
  if constexpr (Bits == 4) {
    return (Field < 2 ? w << 2 : w >> 6) & mask;
  } else if constexpr (HeadDim == 64) {
    return (Field < 2 ? w << 4 : Field < 4 ? w : Field < 6 ? w >> 4 : w >> 8) & mask;
  } else {
    return (Field < 2 ? w << 4 : Field < 5 ? w : w >> 6) & mask;
  }
}

}  // namespace kvproof::gpu
