#include "reference/attention/attention_head.hpp"

#include <cmath>
#include <numbers>

#include "reference/formats/code_operands.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core.hpp"

namespace kvproof::reference {
namespace {

half_matrix query_operand(const decode_input& input) {
  half_matrix q(input.head_dim, query_columns);
  for (int g = 0; g < input.gqa_ratio; ++g) {
    for (int channel = 0; channel < input.head_dim; ++channel) {
      q.at(channel, g) = input.q[static_cast<std::size_t>(g) * input.head_dim + channel];
    }
  }
  return q;
}

std::vector<fixed_point_query> fixed_point_queries(const decode_input& input) {
  std::vector<fixed_point_query> rows;
  if (spec::format_of(input.format).scales != spec::scale_layout::per_token) return rows;
  for (int g = 0; g < input.gqa_ratio; ++g) {
    rows.push_back(to_fixed_point(input.q.subspan(static_cast<std::size_t>(g) * input.head_dim,
                                                  static_cast<std::size_t>(input.head_dim))));
  }
  return rows;
}

half_matrix scaled_query_operand(const half_matrix& q, const spec::kv_format& format,
                                 int head_dim) {
  if (format.scales != spec::scale_layout::group16) return {0, query_columns};
  half_matrix scaled = q;
  for (int channel = 0; channel < head_dim; ++channel) {
    const int exponent = operand_exponent(format, head_dim, kv_side::key, channel / 16);
    const float factor = std::ldexp(1.0f, exponent - key_exponent);
    for (int g = 0; g < query_columns; ++g) {
      scaled.at(channel, g) = float_to_half(half_to_float(q.at(channel, g)) * factor);
    }
  }
  return scaled;
}

}  // namespace

attention_head::attention_head(const decode_input& decode, architecture mma_model)
    : input(decode),
      format(spec::format_of(decode.format)),
      layout(layout_of(decode.format, decode.head_dim)),
      arch(mma_model),
      head_dim(decode.head_dim),
      num_queries(decode.gqa_ratio),
      c(static_cast<float>(double{decode.softmax_scale} * std::numbers::log2e)),
      q(query_operand(decode)),
      fixed_point(fixed_point_queries(decode)),
      q_prime(scaled_query_operand(q, format, head_dim)) {}

void mma_chain(std::span<query_row> c, const half_matrix& a, const half_matrix& b,
               architecture arch) {
  static_assert(sizeof(query_row) == query_columns * sizeof(float), "rows lie without gaps");
  mma_matrix({c.front().data(), static_cast<std::size_t>(a.rows) * query_columns}, a.values,
             b.values, arch);
}

std::vector<std::int16_t> key_codes(const attention_head& head, std::span<const std::byte> page) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(spec::tokens_per_page) * head.head_dim);
  head.layout.read_codes(kv_side::key, page, codes);
  return {codes.begin(), codes.end()};
}

half_matrix key_operand(const attention_head& head, std::span<const std::byte> page) {
  half_matrix operand(spec::tokens_per_page, head.head_dim);
  std::vector<std::uint8_t> codes(operand.values.size());
  head.layout.read_codes(kv_side::key, page, codes);
  for (std::size_t first = 0; first < codes.size(); first += 16) {
    const int group = static_cast<int>(first % head.head_dim / 16);
    const int shift = operand_shift(head.format, head.head_dim, kv_side::key, group);
    for (std::size_t i = first; i < first + 16; ++i) {
      operand.values[i] = static_cast<half_bits>(codes[i] << shift);
    }
  }
  return operand;
}

half_matrix value_operand(const attention_head& head, std::span<const std::byte> page) {
  half_matrix operand(head.head_dim, spec::tokens_per_page);
  std::vector<std::uint8_t> codes(operand.values.size());
  head.layout.read_codes_transposed(kv_side::value, page, codes);
  constexpr std::size_t group_size = 16 * spec::tokens_per_page;
  for (std::size_t first = 0; first < codes.size(); first += group_size) {
    const int group = static_cast<int>(first / group_size);
    const int shift = operand_shift(head.format, head.head_dim, kv_side::value, group);
    for (std::size_t i = first; i < first + group_size; ++i) {
      operand.values[i] = static_cast<half_bits>(codes[i] << shift);
    }
  }
  return operand;
}

}  // namespace kvproof::reference
