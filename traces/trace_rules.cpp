#include "traces/trace_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "traces/half.hpp"

namespace kvproof::traces {

std::optional<std::string> broken_rule(const model_facts& model, std::int64_t num_tokens,
                                       std::int64_t prompt_length) {
  const std::array<std::pair<std::string_view, int>, 4> extents = {
      {{"num_layers", model.num_layers},
       {"query_heads", model.query_heads},
       {"kv_heads", model.kv_heads},
       {"head_dim", model.head_dim}}};
  for (const auto& [name, value] : extents) {
    if (value < 1 || value > max_extent) {
      return fmt::format("{} = {} is not in 1 to {}", name, value, max_extent);
    }
  }
  if (model.query_heads % model.kv_heads != 0) {
    return fmt::format("query_heads = {} is not a multiple of kv_heads = {}", model.query_heads,
                       model.kv_heads);
  }
  for (const auto& [name, value] : {std::pair{"rope_theta", model.rope_theta},
                                    std::pair{"softmax_scale", model.softmax_scale}}) {
    if (!(value > 0) || !std::isfinite(value)) {
      return fmt::format("{} = {} is not a positive number", name, value);
    }
  }
  if (num_tokens < 0 || num_tokens > max_tokens) {
    return fmt::format("num_tokens = {} is not in 0 to {}", num_tokens, max_tokens);
  }
  if (prompt_length < 0 || prompt_length > num_tokens) {
    return fmt::format("prompt_length = {} is not in 0 to num_tokens = {}", prompt_length,
                       num_tokens);
  }
  return std::nullopt;
}

bool is_utf8(std::string_view text) {
  constexpr std::array<std::uint32_t, 4> smallest = {0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == 0) return false;
    if (lead < 0x80) continue;
    const std::size_t extra = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i <= extra) return false;
    std::uint32_t code_point = lead & (0x3fu >> extra);
    for (std::size_t k = 0; k < extra; ++k) {
      const auto next = static_cast<unsigned char>(text[++i]);
      if ((next & 0xc0) != 0x80) return false;
      code_point = code_point << 6 | (next & 0x3fu);
    }
    const bool surrogate = code_point >= 0xd800 && code_point < 0xe000;
    if (code_point < smallest[extra] || code_point > 0x10ffff || surrogate) return false;
  }
  return true;
}

std::optional<std::int64_t> first_non_finite(std::span<const half_bits> values) {
  const auto at = std::ranges::find_if_not(values, is_finite);
  if (at == values.end()) return std::nullopt;
  return at - values.begin();
}

std::string describe_element(int layer, std::string_view tensor, std::int64_t index, int heads,
                             int head_dim, half_bits bits) {
  const bool is_nan = (bits & ~0x8000 & 0xffff) > half_exponent_mask;
  return fmt::format("layer {}, token {}, {} head {}, channel {} is {:#06x} ({})", layer,
                     index / head_dim / heads, tensor == "q" ? "query" : "kv",
                     index / head_dim % heads, index % head_dim, bits, is_nan ? "NaN" : "infinity");
}

}  // namespace kvproof::traces
