// What stays the same while decode attention walks over the cache of one KV head: queries as MMA
// operands or in fixed point, constants, and for each quantized part its format and page layout.
// decode_attention.md, introduction and section 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/decode_attention.hpp"
#include "reference/attention/fixed_point_query.hpp"
#include "reference/attention/online_softmax.hpp"
#include "reference/formats/page_layout.hpp"

namespace kvproof::reference {

inline constexpr half_bits half_one = 0x3c00;

// Row-major fp16 operand of an MMA chain.
struct half_matrix {
  half_matrix(std::int64_t num_rows, std::int64_t num_cols, half_bits fill = 0)
      : rows(num_rows), cols(num_cols), values(static_cast<std::size_t>(rows * cols), fill) {}

  half_bits& at(std::int64_t row, std::int64_t col) { return values[row * cols + col]; }
  half_bits at(std::int64_t row, std::int64_t col) const { return values[row * cols + col]; }

  std::int64_t rows, cols;
  std::vector<half_bits> values;
};

// Tokens of one format in pages; positions of the cache from first_position on.
struct quantized_part {
  const spec::kv_format& format;
  const page_layout& layout;
  int head_dim;
  std::int64_t first_position;
  std::int64_t num_tokens;
  std::span<const std::span<const std::byte>> pages;
};

struct attention_head {
  attention_head(const decode_input& decode, architecture mma_model);

  const decode_input& input;
  std::vector<quantized_part> quantized;  // ascending positions; two with two tiers
  architecture arch;
  int head_dim;
  int num_queries;  // G
  float c;          // RN32(softmax_scale * log2(e))
  half_matrix q;    // [head_dim][8], padded with zero columns
  // Formats with per-token scales; empty otherwise.
  std::vector<fixed_point_query> fixed_point;  // [G]
  // Formats with scales per group of 16; empty otherwise.
  half_matrix q_high;  // [head_dim][8]: q'h = rn16(qh * 2^(eK(j) - E))
  half_matrix q_low;   // [head_dim][8]: q'l, of what qh leaves of q
};

// c[m][.] = MMA chain over k16 steps, ascending, from the given c: a is [M][K], b is [K][8].
void mma_chain(std::span<query_row> c, const half_matrix& a, const half_matrix& b,
               architecture arch);

// The key codes of a page as they are, [tokens_per_page][head_dim].
[[nodiscard]] std::vector<std::int16_t> key_codes(const quantized_part& part,
                                                  std::span<const std::byte> page);

// The codes of a page as operand: K^ [tokens_per_page][head_dim], of 2-bit keys, and V^ transposed,
// [head_dim][tokens_per_page].
[[nodiscard]] half_matrix key_operand(const quantized_part& part, std::span<const std::byte> page);
[[nodiscard]] half_matrix value_operand(const quantized_part& part,
                                        std::span<const std::byte> page);

}  // namespace kvproof::reference
