// Facts about the quantized KV formats: bit widths, groups, page size. Prose: kv_formats.md.
//
// A page holds 32 or 64 tokens of one KV head. Only its size is stated here; where each bit lies is
// described in kv_formats.md and implemented twice, once in reference/formats and once in
// gpu/kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvproof::spec {

enum class format_id : std::uint8_t { int2_g16, k8v4, k4v2 };

// Which elements share one scale and zero.
enum class scale_layout : std::uint8_t {
  per_token,  // DiffKV: one (scale, zero) for the head_dim channels of a token, for K and for V
  group16,    // MiniKV: K in groups of 16 tokens per channel, V in groups of 16 channels per token
};

struct kv_format {
  format_id id;
  std::string_view name;
  int key_bits;
  int value_bits;
  scale_layout scales;
  int token_granularity;  // the number of quantized tokens is a multiple of this
  int tokens_per_page;
  int contract_version;  // raised when arithmetic or byte layout changes
};

inline constexpr int tokens_per_tile = 16;  // rows of one m16n8k16 operand
inline constexpr int group_size = 16;       // elements sharing a scale in group16 formats
inline constexpr int max_gqa_ratio = 8;     // query heads per KV head: the N dimension of the MMA
inline constexpr int page_alignment_bytes = 128;

inline constexpr std::array<kv_format, 3> kv_formats = {{
    {format_id::int2_g16, "int2_g16", 2, 2, scale_layout::group16, 16, 64, 2},
    {format_id::k8v4, "k8v4", 8, 4, scale_layout::per_token, 1, 32, 3},
    {format_id::k4v2, "k4v2", 4, 2, scale_layout::per_token, 1, 64, 2},
}};

[[nodiscard]] constexpr const kv_format& format_of(format_id id) {
  return kv_formats[static_cast<std::size_t>(id)];
}

[[nodiscard]] constexpr bool is_supported_head_dim(int head_dim) {
  return head_dim == 64 || head_dim == 128;
}

// Bytes of a page that are in use, from its beginning: codes of K, codes of V, then scales and
// zeros.
[[nodiscard]] constexpr std::int64_t page_content_bytes(const kv_format& format, int head_dim) {
  const std::int64_t elements = std::int64_t{format.tokens_per_page} * head_dim;
  const std::int64_t codes = elements * (format.key_bits + format.value_bits) / 8;
  const std::int64_t pairs = format.scales == scale_layout::per_token
                                 ? std::int64_t{2} * format.tokens_per_page
                                 : 2 * elements / group_size;
  return codes + pairs * 4;
}

// Bytes from one page to the next. The tiers of DiffKV share it, so that one pool serves both; what
// a page of K8V4 does not use is neither read nor written. For head_dim 128: int2_g16 8192, k8v4
// and k4v2 6656; for head_dim 64: 4096, 3584.
[[nodiscard]] constexpr std::int64_t page_size_bytes(const kv_format& format, int head_dim) {
  std::int64_t bytes = page_content_bytes(format, head_dim);
  if (format.scales != scale_layout::per_token) return bytes;
  for (const kv_format& tier : kv_formats) {
    if (tier.scales != scale_layout::per_token) continue;
    if (bytes < page_content_bytes(tier, head_dim)) bytes = page_content_bytes(tier, head_dim);
  }
  return bytes;
}

[[nodiscard]] constexpr std::int64_t pages_for_tokens(const kv_format& format,
                                                      std::int64_t num_tokens) {
  return (num_tokens + format.tokens_per_page - 1) / format.tokens_per_page;
}

static_assert(page_size_bytes(format_of(format_id::int2_g16), 128) == 8192);
static_assert(page_size_bytes(format_of(format_id::k8v4), 128) == 6656);
static_assert(page_size_bytes(format_of(format_id::k4v2), 128) == 6656);
static_assert(page_size_bytes(format_of(format_id::int2_g16), 64) == 4096);
static_assert(page_size_bytes(format_of(format_id::k8v4), 64) == 3584);
static_assert(page_size_bytes(format_of(format_id::k4v2), 64) == 3584);

static_assert(page_content_bytes(format_of(format_id::k8v4), 128) == 6400);
static_assert(page_content_bytes(format_of(format_id::k8v4), 64) == 3328);

}  // namespace kvproof::spec
