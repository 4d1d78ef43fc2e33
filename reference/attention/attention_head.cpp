#include "reference/attention/attention_head.hpp"

#include <cmath>
#include <numbers>

#include "reference/formats/code_operands.hpp"
#include "reference/numerics/arithmetic.hpp"
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

bool has_group16_scales(const decode_input& input) {
  return spec::format_of(input.format).scales == spec::scale_layout::group16;
}

std::vector<fixed_point_query> fixed_point_queries(const decode_input& input) {
  std::vector<fixed_point_query> rows;
  if (has_group16_scales(input)) return rows;
  for (int g = 0; g < input.gqa_ratio; ++g) {
    rows.push_back(to_fixed_point(input.q.subspan(static_cast<std::size_t>(g) * input.head_dim,
                                                  static_cast<std::size_t>(input.head_dim))));
  }
  return rows;
}

// eK - E.
int relative_key_exponent(const decode_input& input, int channel) {
  return operand_exponent(spec::format_of(input.format), input.head_dim, kv_side::key,
                          channel / 16) -
         key_exponent;
}

// q with 5 significant bits, towards zero: it never overflows.
half_bits high_part(half_bits q) { return static_cast<half_bits>(q & ~63u); }

// q - qh: the low 6 bits of the significand, exact also where it is subnormal.
half_bits low_part(half_bits q) {
  return float_to_half(sub(half_to_float(q), half_to_float(high_part(q))));
}

half_matrix scaled_query_operand(const decode_input& input, const half_matrix& q,
                                 half_bits (*part)(half_bits)) {
  if (!has_group16_scales(input)) return {0, query_columns};
  half_matrix scaled = q;
  for (int channel = 0; channel < input.head_dim; ++channel) {
    const float factor = std::ldexp(1.0f, relative_key_exponent(input, channel));
    for (int g = 0; g < query_columns; ++g) {
      scaled.at(channel, g) = float_to_half(mul(half_to_float(part(q.at(channel, g))), factor));
    }
  }
  return scaled;
}

std::vector<quantized_part> quantized_parts(const decode_input& input) {
  const auto part = [&](spec::format_id id, std::int64_t first, std::int64_t n, const auto& pages) {
    return quantized_part{
        spec::format_of(id), layout_of(id, input.head_dim), input.head_dim, first, n, pages};
  };
  std::vector<quantized_part> parts = {part(input.format, 0, input.num_quantized, input.pages)};
  if (input.num_low > 0) {
    parts.push_back(
        part(spec::format_id::k4v2, input.num_quantized, input.num_low, input.low_pages));
  }
  return parts;
}

}  // namespace

attention_head::attention_head(const decode_input& decode, architecture mma_model)
    : input(decode),
      quantized(quantized_parts(decode)),
      arch(mma_model),
      head_dim(decode.head_dim),
      num_queries(decode.gqa_ratio),
      c(static_cast<float>(double{decode.softmax_scale} * std::numbers::log2e)),
      q(query_operand(decode)),
      fixed_point(fixed_point_queries(decode)),
      q_high(scaled_query_operand(decode, q, high_part)),
      q_low(scaled_query_operand(decode, q, low_part)) {}

void mma_chain(std::span<query_row> c, const half_matrix& a, const half_matrix& b,
               architecture arch) {
  static_assert(sizeof(query_row) == query_columns * sizeof(float), "rows lie without gaps");
  mma_matrix({c.front().data(), static_cast<std::size_t>(a.rows) * query_columns}, a.values,
             b.values, arch);
}

std::vector<std::int16_t> key_codes(const quantized_part& part, std::span<const std::byte> page) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(part.format.tokens_per_page) *
                                  part.head_dim);
  part.layout.read_codes(kv_side::key, page, codes);
  return {codes.begin(), codes.end()};
}

half_matrix key_operand(const quantized_part& part, std::span<const std::byte> page) {
  half_matrix operand(part.format.tokens_per_page, part.head_dim);
  std::vector<std::uint8_t> codes(operand.values.size());
  part.layout.read_codes(kv_side::key, page, codes);
  for (std::size_t first = 0; first < codes.size(); first += 16) {
    const int group = static_cast<int>(first % part.head_dim / 16);
    const int shift = operand_shift(part.format, part.head_dim, kv_side::key, group);
    for (std::size_t i = first; i < first + 16; ++i) {
      operand.values[i] = static_cast<half_bits>(codes[i] << shift);
    }
  }
  return operand;
}

half_matrix value_operand(const quantized_part& part, std::span<const std::byte> page) {
  half_matrix operand(part.head_dim, part.format.tokens_per_page);
  std::vector<std::uint8_t> codes(operand.values.size());
  part.layout.read_codes_transposed(kv_side::value, page, codes);
  const auto group_size = static_cast<std::size_t>(16 * part.format.tokens_per_page);
  for (std::size_t first = 0; first < codes.size(); first += group_size) {
    const int group = static_cast<int>(first / group_size);
    const int shift = operand_shift(part.format, part.head_dim, kv_side::value, group);
    for (std::size_t i = first; i < first + group_size; ++i) {
      operand.values[i] = static_cast<half_bits>(codes[i] << shift);
    }
  }
  return operand;
}

}  // namespace kvproof::reference
