// Where codes, scales and zeros lie in a page: kv_formats.md section 3 in code. Positions are
// tabulated once per (format, head_dim) from the formulas, so that reading a page is a table
// lookup.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/spec/kv_format.hpp"

namespace kvproof::reference {

enum class kv_side : std::uint8_t { key, value };

// A code occupies bits [bit, bit + code_bits) of the little-endian half at `byte` of the page,
// which is even: bits 8 to 15 are the byte behind it.
struct code_field {
  std::uint16_t byte;
  std::uint16_t bit;
};

// Bytes of the fp16 scale and of the fp16 zero that an element is quantized with.
struct scale_position {
  std::uint16_t scale_byte;
  std::uint16_t zero_byte;
};

class page_layout {
 public:
  // head_dim is 64 or 128.
  page_layout(const spec::kv_format& format, int head_dim);

  [[nodiscard]] int code_bits(kv_side side) const;
  // Element (token of the page, channel).
  [[nodiscard]] code_field code(kv_side side, int token, int channel) const;
  // Elements that share a group share the answer.
  [[nodiscard]] scale_position scale(kv_side side, int token, int channel) const {
    return sides_[static_cast<std::size_t>(side)].scales[std::int64_t{token} * head_dim_ + channel];
  }

  // All codes of a page, [tokens_per_page][head_dim] or, transposed, [head_dim][tokens_per_page].
  void read_codes(kv_side side, std::span<const std::byte> page,
                  std::span<std::uint8_t> codes) const;
  void read_codes_transposed(kv_side side, std::span<const std::byte> page,
                             std::span<std::uint8_t> codes) const;

 private:
  struct side_tables {
    int code_bits;
    std::vector<code_field> codes;       // [tokens_per_page][head_dim]
    std::vector<scale_position> scales;  // [tokens_per_page][head_dim]
    // The same the other way round: the halves that hold codes, from first_byte on without gaps,
    // and for each of them the elements whose codes it holds, lowest bit first.
    int first_byte;
    std::vector<std::uint16_t> elements;             // index into [tokens_per_page][head_dim]
    std::vector<std::uint16_t> elements_transposed;  // index into [head_dim][tokens_per_page]
  };
  void tabulate_elements(side_tables& tables) const;
  int head_dim_;
  int tokens_per_page_;
  std::array<side_tables, 2> sides_;
};

// The layout of a format, built on first use. Throws contract_error unless head_dim is 64 or 128.
[[nodiscard]] const page_layout& layout_of(spec::format_id format, int head_dim);

// The little-endian half at `byte`.
[[nodiscard]] inline std::uint16_t read_half(std::span<const std::byte> page, std::size_t byte) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(page[byte]) |
                                    std::to_integer<unsigned>(page[byte + 1]) << 8);
}
inline void write_half(std::span<std::byte> page, std::size_t byte, std::uint16_t value) {
  page[byte] = static_cast<std::byte>(value & 0xff);
  page[byte + 1] = static_cast<std::byte>(value >> 8);
}

}  // namespace kvproof::reference
