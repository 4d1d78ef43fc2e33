// append_tokens, unpack_tokens, dequantize_tokens: kv_formats.md sections 1, 3 and 4.
#include "reference/formats/page_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "reference/formats/page_layout.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

using spec::contract_error;

constexpr std::array both_sides = {kv_side::key, kv_side::value};

template <typename Byte>
void check_pages(const spec::kv_format& format, int head_dim, std::int64_t end,
                 std::span<const std::span<Byte>> pages, const char* caller) {
  const std::int64_t num_pages = spec::pages_for_tokens(format, end);
  if (num_pages > std::ssize(pages)) {
    throw contract_error(
        fmt::format("{}: {} tokens need {} pages, {} given; allocate the pages first", caller, end,
                    num_pages, pages.size()));
  }
  const std::int64_t size = spec::page_size_bytes(format, head_dim);
  for (std::int64_t p = 0; p < num_pages; ++p) {
    if (std::ssize(pages[p]) != size) {
      throw contract_error(
          fmt::format("{}: page {} has {} bytes; a page of {} at head_dim {} has {}", caller, p,
                      pages[p].size(), format.name, head_dim, size));
    }
  }
}

void check_granularity(const spec::kv_format& format, std::int64_t first, std::int64_t n,
                       const char* caller) {
  if (first < 0 || n < 0 || first % format.token_granularity != 0 ||
      n % format.token_granularity != 0) {
    throw contract_error(fmt::format(
        "{}: tokens {} .. {} of {}; first and count must be non-negative multiples of {}", caller,
        first, first + n, format.name, format.token_granularity));
  }
}

// A rectangle of elements that share scale and zero; tokens count from the start of the cache.
struct group_shape {
  int tokens, channels;
  quantizer rule;
};

group_shape group_shape_of(const spec::kv_format& format, int head_dim, kv_side side) {
  if (format.scales == spec::scale_layout::per_token) return {1, head_dim, quantizer::contract};
  return side == kv_side::key ? group_shape{spec::group_size, 1, quantizer::contract_group16_key}
                              : group_shape{1, spec::group_size, quantizer::contract};
}

void write_code(std::span<std::byte> page, code_field field, int code_bits, std::uint8_t code) {
  const unsigned mask = ((1u << code_bits) - 1) << field.bit;
  const unsigned kept = read_half(page, field.byte) & ~mask;
  write_half(page, field.byte, static_cast<std::uint16_t>(kept | unsigned{code} << field.bit));
}

// Quantizes one group, whose first element is rows[token][channel], into slots of one page.
void write_group(const page_layout& layout, kv_side side, int head_dim, group_shape shape,
                 std::span<const half_bits> rows, int channel, std::span<std::byte> page,
                 int slot) {
  std::vector<half_bits> x;
  for (int t = 0; t < shape.tokens; ++t) {
    const auto row = rows.subspan(static_cast<std::size_t>(t) * head_dim + channel, shape.channels);
    x.insert(x.end(), row.begin(), row.end());
  }
  const quantized_group group = quantize_group(x, layout.code_bits(side), shape.rule);
  auto code = group.codes.begin();
  for (int t = 0; t < shape.tokens; ++t) {
    for (int c = 0; c < shape.channels; ++c) {
      write_code(page, layout.code(side, slot + t, channel + c), layout.code_bits(side), *code++);
    }
  }
  const scale_position position = layout.scale(side, slot, channel);
  write_half(page, position.scale_byte, group.scale);
  write_half(page, position.zero_byte, group.zero);
}

}  // namespace

void append_tokens(const spec::kv_format& format, int head_dim, std::span<const half_bits> k,
                   std::span<const half_bits> v, std::int64_t first,
                   std::span<const std::span<std::byte>> pages) {
  const page_layout& layout = layout_of(format.id, head_dim);
  if (k.size() != v.size() || k.size() % head_dim != 0) {
    throw contract_error(
        fmt::format("append_tokens: k has {} and v has {} elements; both must be n rows of {}",
                    k.size(), v.size(), head_dim));
  }
  const std::int64_t n = std::ssize(k) / head_dim;
  check_granularity(format, first, n, "append_tokens");
  check_pages(format, head_dim, n == 0 ? 0 : first + n, pages, "append_tokens");

  const int page_tokens = format.tokens_per_page;
  const auto content = static_cast<std::size_t>(spec::page_content_bytes(format, head_dim));
  for (std::int64_t token = first; token < first + n; ++token) {
    if (token % page_tokens == 0)
      std::ranges::fill(pages[token / page_tokens].first(content), std::byte{});
  }
  for (const kv_side side : both_sides) {
    const group_shape shape = group_shape_of(format, head_dim, side);
    const std::span<const half_bits> x = side == kv_side::key ? k : v;
    for (std::int64_t t = 0; t < n; t += shape.tokens) {
      const std::int64_t token = first + t;
      for (int channel = 0; channel < head_dim; channel += shape.channels) {
        write_group(layout, side, head_dim, shape, x.subspan(t * head_dim), channel,
                    pages[token / page_tokens], static_cast<int>(token % page_tokens));
      }
    }
  }
}

unpacked_tokens unpack_tokens(const spec::kv_format& format, int head_dim, std::int64_t n,
                              std::span<const std::span<const std::byte>> pages) {
  const page_layout& layout = layout_of(format.id, head_dim);
  check_granularity(format, 0, n, "unpack_tokens");
  check_pages(format, head_dim, n, pages, "unpack_tokens");

  unpacked_tokens result;
  const int page_tokens = format.tokens_per_page;
  std::vector<std::uint8_t> page_codes(static_cast<std::size_t>(page_tokens) * head_dim);
  for (const kv_side side : both_sides) {
    const bool is_key = side == kv_side::key;
    std::vector<std::uint8_t>& codes = is_key ? result.key_codes : result.value_codes;
    std::vector<half_bits>& scales = is_key ? result.key_scales : result.value_scales;
    std::vector<half_bits>& zeros = is_key ? result.key_zeros : result.value_zeros;
    const group_shape shape = group_shape_of(format, head_dim, side);
    for (std::int64_t first = 0; first < n; first += page_tokens) {
      const std::span<const std::byte> page = pages[first / page_tokens];
      const int slots = static_cast<int>(std::min<std::int64_t>(n - first, page_tokens));
      layout.read_codes(side, page, page_codes);
      codes.insert(codes.end(), page_codes.begin(), page_codes.begin() + slots * head_dim);
      for (int slot = 0; slot < slots; slot += shape.tokens) {
        for (int channel = 0; channel < head_dim; channel += shape.channels) {
          const scale_position position = layout.scale(side, slot, channel);
          scales.push_back(read_half(page, position.scale_byte));
          zeros.push_back(read_half(page, position.zero_byte));
        }
      }
    }
  }
  return result;
}

dequantized_tokens dequantize_tokens(const spec::kv_format& format, int head_dim, std::int64_t n,
                                     std::span<const std::span<const std::byte>> pages) {
  const unpacked_tokens tokens = unpack_tokens(format, head_dim, n, pages);
  const auto decode = [&](kv_side side, const std::vector<std::uint8_t>& codes,
                          const std::vector<half_bits>& scales,
                          const std::vector<half_bits>& zeros) {
    const group_shape shape = group_shape_of(format, head_dim, side);
    const std::int64_t groups_per_row = head_dim / shape.channels;
    std::vector<double> values(codes.size());
    for (std::int64_t token = 0; token < n; ++token) {
      for (std::int64_t channel = 0; channel < head_dim; ++channel) {
        const std::int64_t group = token / shape.tokens * groups_per_row + channel / shape.channels;
        const std::int64_t i = token * head_dim + channel;
        // Exact: at most 8 + 11 bits, and the sum spans less than 53.
        values[i] = static_cast<double>(codes[i]) * double{half_to_float(scales[group])} +
                    double{half_to_float(zeros[group])};
      }
    }
    return values;
  };
  return {decode(kv_side::key, tokens.key_codes, tokens.key_scales, tokens.key_zeros),
          decode(kv_side::value, tokens.value_codes, tokens.value_scales, tokens.value_zeros)};
}

}  // namespace kvproof::reference
