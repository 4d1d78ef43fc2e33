#include "reference/formats/page_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

constexpr int fragment_bytes = 512;
constexpr int bits_per_half = 16;
constexpr int bits_per_byte = 8;

constexpr std::size_t index_of(kv_side side) { return static_cast<std::size_t>(side); }

// w16: byte of the half (row, col) inside a fragment, the A operand of m16n8k16.
int half_fragment_byte(int row, int col) {
  const int lane = 4 * (row & 7) + ((col & 7) >> 1);
  const int reg = (row >> 3) | (col >> 3) << 1;
  return lane * 16 + reg * 4 + (col & 1) * 2;
}

// w8: byte of (token 0..15, channel 0..31 of a pair of groups) inside a fragment, the 8-bit A
// operand of m16n8k32.
int byte_fragment_byte(int token, int channel) {
  const int lane = 4 * (token & 7) + ((channel & 7) >> 1);
  const int reg = (token >> 3) | (channel >> 4) << 1;
  return lane * 16 + reg * 4 + (channel >> 3 & 1) * 2 + (channel & 1);
}

struct page_regions {
  int value_fragments;  // first byte
  int scales;           // first byte; M in the prose
};

page_regions regions_of(const spec::kv_format& format, int head_dim) {
  switch (format.id) {
    case spec::format_id::k8v4:
    case spec::format_id::k4v2:
      return {32 * head_dim, 48 * head_dim};
    case spec::format_id::int2_g16:
      return {16 * head_dim, 32 * head_dim};
  }
  throw spec::contract_error("page_layout: unknown format id; use one of spec::kv_formats");
}

// Token 16 * tile + tile_token, channel 16 * group + group_channel.
struct element {
  int tile, tile_token;
  int group, group_channel;
};

code_field code_in_halves(const element& e, kv_side side, int code_bits, int head_dim, int region) {
  const int fields = bits_per_half / code_bits;
  const int index = e.tile * (head_dim / 16) + e.group;
  const int row = side == kv_side::key ? e.tile_token : e.group_channel;
  const int col = side == kv_side::key ? e.group_channel : e.tile_token;
  const int byte = region + fragment_bytes * (index / fields) + half_fragment_byte(row, col);
  return {static_cast<std::uint16_t>(byte),
          static_cast<std::uint16_t>(code_bits * (index % fields))};
}

code_field code_in_bytes(const element& e, int code_bits, int head_dim, int region) {
  const int fields = bits_per_byte / code_bits;
  const int index = e.tile * (head_dim / 32) + e.group / 2;
  const int channel = 16 * (e.group % 2) + e.group_channel;
  const int byte =
      region + fragment_bytes * (index / fields) + byte_fragment_byte(e.tile_token, channel);
  const int bit = code_bits * (index % fields);
  return {static_cast<std::uint16_t>(byte - byte % 2),
          static_cast<std::uint16_t>(bit + bits_per_byte * (byte % 2))};
}

code_field code_position(const element& e, kv_side side, int code_bits, int head_dim, int region) {
  return side == kv_side::key && code_bits > 2
             ? code_in_bytes(e, code_bits, head_dim, region)
             : code_in_halves(e, side, code_bits, head_dim, region);
}

scale_position per_token_scale(const element& e, kv_side side, int region) {
  const int token_byte = region + 128 * e.tile + 16 * (e.tile_token & 7) + 8 * (e.tile_token >> 3);
  const int byte = token_byte + (side == kv_side::key ? 0 : 4);
  return {static_cast<std::uint16_t>(byte), static_cast<std::uint16_t>(byte + 2)};
}

scale_position group16_scale(const element& e, kv_side side, int head_dim, int region) {
  const auto inner = [&](int x) {
    return ((x & 7) >> 1) * 16 + (e.group & 1) * 8 + (x >> 3) * 4 + (x & 1) * 2;
  };
  const int region_bytes = 8 * head_dim;
  int scale = 0;
  int zero = 0;
  if (side == kv_side::key) {
    scale = region + 2 * head_dim * e.tile + 64 * (e.group / 2) + inner(e.group_channel);
    zero = region + region_bytes + 256 * (e.group / 2) + 64 * e.tile + inner(e.group_channel);
  } else {
    const int tt = e.tile_token;
    scale = region + 2 * region_bytes + 2 * head_dim * e.tile + 64 * (e.group / 2) + inner(tt);
    zero = region + 3 * region_bytes + 2 * head_dim * e.tile + 8 * (4 * e.group + ((tt & 7) >> 1)) +
           4 * (tt >> 3) + 2 * (tt & 1);
  }
  return {static_cast<std::uint16_t>(scale), static_cast<std::uint16_t>(zero)};
}

// codes[elements[i]] = the i-th code of the halves.
template <int CodeBits>
void scatter_codes_of(std::span<const std::byte> halves, std::span<const std::uint16_t> elements,
                      std::span<std::uint8_t> codes) {
  constexpr std::size_t fields = bits_per_half / CodeBits;
  for (std::size_t i = 0; i < elements.size(); i += fields) {
    const unsigned half = read_half(halves, 2 * (i / fields));
    for (std::size_t f = 0; f < fields; ++f) {
      codes[elements[i + f]] =
          static_cast<std::uint8_t>(half >> (CodeBits * f) & ((1u << CodeBits) - 1));
    }
  }
}

void scatter_codes(int code_bits, std::span<const std::byte> halves,
                   std::span<const std::uint16_t> elements, std::span<std::uint8_t> codes) {
  if (code_bits == 2) return scatter_codes_of<2>(halves, elements, codes);
  if (code_bits == 4) return scatter_codes_of<4>(halves, elements, codes);
  return scatter_codes_of<8>(halves, elements, codes);
}

}  // namespace

page_layout::page_layout(const spec::kv_format& format, int head_dim)
    : head_dim_(head_dim), tokens_per_page_(format.tokens_per_page) {
  const page_regions regions = regions_of(format, head_dim);
  for (const kv_side side : {kv_side::key, kv_side::value}) {
    side_tables& tables = sides_[index_of(side)];
    tables.code_bits = side == kv_side::key ? format.key_bits : format.value_bits;
    const int fragments = side == kv_side::key ? 0 : regions.value_fragments;
    for (int token = 0; token < tokens_per_page_; ++token) {
      for (int channel = 0; channel < head_dim; ++channel) {
        const element e = {token / 16, token % 16, channel / 16, channel % 16};
        tables.codes.push_back(code_position(e, side, tables.code_bits, head_dim, fragments));
        tables.scales.push_back(format.scales == spec::scale_layout::per_token
                                    ? per_token_scale(e, side, regions.scales)
                                    : group16_scale(e, side, head_dim, regions.scales));
      }
    }
    tabulate_elements(tables);
  }
}

void page_layout::tabulate_elements(side_tables& tables) const {
  const int fields = bits_per_half / tables.code_bits;
  tables.first_byte = std::ranges::min(tables.codes, {}, &code_field::byte).byte;
  tables.elements.resize(tables.codes.size());
  tables.elements_transposed.resize(tables.codes.size());
  for (std::size_t element = 0; element < tables.codes.size(); ++element) {
    const code_field field = tables.codes[element];
    const int at = (field.byte - tables.first_byte) / 2 * fields + field.bit / tables.code_bits;
    const std::size_t token = element / head_dim_;
    const std::size_t channel = element % head_dim_;
    tables.elements[at] = static_cast<std::uint16_t>(element);
    tables.elements_transposed[at] = static_cast<std::uint16_t>(channel * tokens_per_page_ + token);
  }
}

int page_layout::code_bits(kv_side side) const { return sides_[index_of(side)].code_bits; }

code_field page_layout::code(kv_side side, int token, int channel) const {
  return sides_[index_of(side)].codes[std::int64_t{token} * head_dim_ + channel];
}

void page_layout::read_codes(kv_side side, std::span<const std::byte> page,
                             std::span<std::uint8_t> codes) const {
  const side_tables& tables = sides_[index_of(side)];
  scatter_codes(tables.code_bits, page.subspan(tables.first_byte), tables.elements, codes);
}

void page_layout::read_codes_transposed(kv_side side, std::span<const std::byte> page,
                                        std::span<std::uint8_t> codes) const {
  const side_tables& tables = sides_[index_of(side)];
  scatter_codes(tables.code_bits, page.subspan(tables.first_byte), tables.elements_transposed,
                codes);
}

const page_layout& layout_of(spec::format_id format, int head_dim) {
  if (!spec::is_supported_head_dim(head_dim)) {
    throw spec::contract_error(
        fmt::format("page_layout: head_dim {} is not supported; use 64 or 128", head_dim));
  }
  using both_head_dims = std::array<page_layout, 2>;
  static const auto layouts = [] {
    const auto of = [](spec::format_id id) {
      return both_head_dims{page_layout(spec::format_of(id), 64),
                            page_layout(spec::format_of(id), 128)};
    };
    return std::array<both_head_dims, 3>{of(spec::kv_formats[0].id), of(spec::kv_formats[1].id),
                                         of(spec::kv_formats[2].id)};
  }();
  return layouts[static_cast<std::size_t>(format)][head_dim == 64 ? 0 : 1];
}

}  // namespace kvproof::reference
