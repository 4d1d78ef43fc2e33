// Demotion of tokens from K8V4 to K4V2: kv_formats.md section 7 in code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/formats/page_codec.hpp"

namespace kvproof::reference {

// The K4V2 code of a K8V4 code and the K4V2 scale of a K8V4 scale (fp16 bits), from `from_bits` to
// `to_bits`: 8 to 4 for K, 4 to 2 for V.
[[nodiscard]] std::uint8_t demoted_code(std::uint8_t code, int from_bits, int to_bits);
[[nodiscard]] half_bits demoted_scale(half_bits scale, int from_bits, int to_bits);

enum class demote_mode : std::uint8_t {
  append,   // a page whose slot 0 is written is new
  replace,  // only the written tokens change
};

// Writes tokens[i] of the K8V4 cache as token first + i of the K4V2 cache. Pages are in token
// order. Throws contract_error when a token or the written range is outside its pages.
void demote_tokens(int head_dim, std::span<const std::span<const std::byte>> from_pages,
                   std::span<const std::int32_t> tokens, std::int64_t first,
                   std::span<const std::span<std::byte>> to_pages, demote_mode mode);

}  // namespace kvproof::reference
