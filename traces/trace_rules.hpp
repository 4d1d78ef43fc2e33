// Schema v1 (traces/README.md): names, limits, and the rules that a trace obeys whether it comes
// from a file or is about to become one. Private to traces/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "traces/attention_trace.hpp"

namespace kvproof::traces {

inline constexpr std::string_view schema_name = "kvproof.attention_trace";
inline constexpr std::uint32_t schema_version = 1;
inline constexpr std::string_view dtype_name = "float16";
inline constexpr std::string_view axes_name = "token, head, channel";

inline constexpr std::int64_t max_extent = 4096;  // layers, heads, channels
inline constexpr std::int64_t max_tokens = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t tokens_per_chunk = 128;
inline constexpr std::int64_t max_chunk_bytes = std::int64_t{64} << 20;
inline constexpr unsigned gzip_level = 6;

// Elements of one tensor; the limits above keep it and its bytes below 2^57.
[[nodiscard]] constexpr std::int64_t num_elements(std::int64_t num_tokens, int heads,
                                                  int head_dim) {
  return num_tokens * heads * head_dim;
}
static_assert(max_extent * max_extent * 2 <= max_chunk_bytes, "a chunk holds a token");
static_assert(max_tokens < (std::int64_t{1} << 57) / (max_extent * max_extent * 2));

// The first rule that the facts break, as "query_heads = 9 is not a multiple of kv_heads = 2".
[[nodiscard]] std::optional<std::string> broken_rule(const model_facts& model,
                                                     std::int64_t num_tokens,
                                                     std::int64_t prompt_length);

[[nodiscard]] bool is_utf8(std::string_view text);  // without NUL

// Index of the first NaN or infinity.
[[nodiscard]] std::optional<std::int64_t> first_non_finite(std::span<const half_bits> values);

// "layer 9, token 3, kv head 1, channel 7 is 0x7c00 (infinity)"
[[nodiscard]] std::string describe_element(int layer, std::string_view tensor, std::int64_t index,
                                           int heads, int head_dim, half_bits bits);

}  // namespace kvproof::traces
