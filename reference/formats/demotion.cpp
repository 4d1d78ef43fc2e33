#include "reference/formats/demotion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "reference/formats/page_layout.hpp"
#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

using spec::contract_error;

constexpr const spec::kv_format& high = spec::format_of(spec::format_id::k8v4);
constexpr const spec::kv_format& low = spec::format_of(spec::format_id::k4v2);
constexpr half_bits canonical_nan = 0x7fff;

int max_code(int bits) { return (1 << bits) - 1; }

template <typename Byte>
void check_page(std::int64_t token, std::span<const std::span<Byte>> pages,
                const spec::kv_format& format, int head_dim) {
  if (token < 0 || token >= std::ssize(pages) * format.tokens_per_page) {
    throw contract_error(fmt::format("demote_tokens: token {} is outside the {} pages of {}", token,
                                     pages.size(), format.name));
  }
  const std::int64_t size = spec::page_size_bytes(format, head_dim);
  const auto page = static_cast<std::size_t>(token / format.tokens_per_page);
  if (std::ssize(pages[page]) != size) {
    throw contract_error(fmt::format("demote_tokens: page {} has {} bytes; one of {} has {}", page,
                                     pages[page].size(), format.name, size));
  }
}

void demote_side(kv_side side, int head_dim, std::span<const std::byte> from, int from_slot,
                 std::span<std::byte> to, int to_slot) {
  const page_layout &from_layout = layout_of(high.id, head_dim),
                    &to_layout = layout_of(low.id, head_dim);
  const int from_bits = from_layout.code_bits(side), to_bits = to_layout.code_bits(side);
  for (int channel = 0; channel < head_dim; ++channel) {
    const code_field source = from_layout.code(side, from_slot, channel);
    const auto code =
        static_cast<std::uint8_t>(read_half(from, source.byte) >> source.bit & max_code(from_bits));
    const code_field target = to_layout.code(side, to_slot, channel);
    const unsigned others =
        read_half(to, target.byte) & ~(static_cast<unsigned>(max_code(to_bits)) << target.bit);
    write_half(to, target.byte,
               static_cast<std::uint16_t>(others | unsigned{demoted_code(code, from_bits, to_bits)}
                                                       << target.bit));
  }
  const scale_position source = from_layout.scale(side, from_slot, 0);
  const scale_position target = to_layout.scale(side, to_slot, 0);
  write_half(to, target.scale_byte,
             demoted_scale(read_half(from, source.scale_byte), from_bits, to_bits));
  write_half(to, target.zero_byte, read_half(from, source.zero_byte));
}

}  // namespace

std::uint8_t demoted_code(std::uint8_t code, int from_bits, int to_bits) {
  // No quotient is halfway between two integers, so any rounding to nearest will do.
  const double quotient = static_cast<double>(code) * max_code(to_bits) / max_code(from_bits);
  return static_cast<std::uint8_t>(std::nearbyint(quotient));
}

half_bits demoted_scale(half_bits scale, int from_bits, int to_bits) {
  const float value = half_to_float(scale);
  if (std::isnan(value)) return canonical_nan;
  return float_to_half(mul(value, static_cast<float>(max_code(from_bits) / max_code(to_bits))));
}

void demote_tokens(int head_dim, std::span<const std::span<const std::byte>> from_pages,
                   std::span<const std::int32_t> tokens, std::int64_t first,
                   std::span<const std::span<std::byte>> to_pages, demote_mode mode) {
  const std::int64_t n = std::ssize(tokens);
  for (std::int64_t i = 0; i < n; ++i) {
    check_page(tokens[i], from_pages, high, head_dim);
    check_page(first + i, to_pages, low, head_dim);
  }
  const auto content = static_cast<std::size_t>(spec::page_content_bytes(low, head_dim));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = tokens[i], to = first + i;
    const std::span<const std::byte> from_page = from_pages[from / high.tokens_per_page];
    const std::span<std::byte> to_page = to_pages[to / low.tokens_per_page];
    const auto from_slot = static_cast<int>(from % high.tokens_per_page);
    const auto to_slot = static_cast<int>(to % low.tokens_per_page);
    if (mode == demote_mode::append && to_slot == 0)
      std::ranges::fill(to_page.first(content), std::byte{});
    for (const kv_side side : {kv_side::key, kv_side::value}) {
      demote_side(side, head_dim, from_page, from_slot, to_page, to_slot);
    }
  }
}

}  // namespace kvproof::reference
