// The registered variants: a scheme with its format and cache policy, as data. One table; nothing
// switches on a variant's name.
#pragma once

#include <span>
#include <string_view>

#include "reference/spec/kv_format.hpp"

namespace kvproof::verify {

// When tokens move from the fp16 recent part into quantized pages.
struct cache_policy {
  // A prompt of T tokens quantizes floor(T / token_granularity) * token_granularity of them; the
  // rest is recent.
  bool quantize_each_token;  // decode: the new token is quantized at once, there is no recent part
  int flush_length;  // decode: the recent part is quantized whole when it holds this many tokens
};

struct variant {
  std::string_view id;
  std::string_view scheme;  // "MiniKV", "DiffKV"
  spec::format_id format;
  cache_policy policy;  // order in a step: append, quantize or flush, attend
  // k4v2 is a low tier below `format`: the first quarter of a prompt is in the high tier, the rest
  // of it in the low one; later tokens are in the high tier.
  bool tiers;
  std::string_view description;
};

[[nodiscard]] std::span<const variant> variants();

// Throws usage_error naming the known ids.
[[nodiscard]] const variant& find_variant(std::string_view id);

}  // namespace kvproof::verify
