#include "reference/attention/strands.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/formats/code_operands.hpp"
#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/attention_plan.hpp"

namespace kvproof::reference {
namespace {

constexpr int tile = spec::tokens_per_tile;

static_assert(spec::tokens_per_block == spec::format_of(spec::format_id::int2_g16).tokens_per_page,
              "group16_strand takes one page a block");
static_assert(std::ranges::all_of(spec::kv_formats,
                                  [](const spec::kv_format& format) {
                                    return spec::tokens_per_block % format.tokens_per_page == 0;
                                  }),
              "a block is whole pages");

// Scores beyond the end of the part become -inf; the others are copied to the score output, where
// the block's first token is at `position`.
void mask_and_store(query_rows& s, std::int64_t num_valid, std::int64_t position, int num_queries,
                    std::span<float> scores) {
  for (std::int64_t t = 0; t < std::ssize(s); ++t) {
    if (t >= num_valid) {
      s[t] = minus_infinity_row();
      continue;
    }
    std::copy_n(s[t].begin(), num_queries, scores.begin() + (position + t) * num_queries);
  }
}

half_matrix to_half_operand(const query_rows& p) {
  half_matrix operand(std::ssize(p), query_columns);
  for (std::int64_t t = 0; t < operand.rows; ++t) {
    for (int g = 0; g < query_columns; ++g) operand.at(t, g) = float_to_half(p[t][g]);
  }
  return operand;
}

query_rows to_floats(const half_matrix& operand) {
  query_rows rows(static_cast<std::size_t>(operand.rows));
  for (std::int64_t i = 0; i < operand.rows; ++i) {
    for (int g = 0; g < query_columns; ++g) rows[i][g] = half_to_float(operand.at(i, g));
  }
  return rows;
}

// rn16(x * factor) for each query; x and factor are fp16 numbers, so the fp32 product is exact.
void scale_queries(const query_row& x, half_bits factor, int num_queries, half_bits* scaled) {
  const float f = half_to_float(factor);
  for (int g = 0; g < num_queries; ++g) scaled[g] = float_to_half(mul(x[g], f));
}

// ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)) for each query.
query_row sum_lanes(const std::array<query_row, 8>& r) {
  query_row sum = zero_row;
  for (int g = 0; g < query_columns; ++g) {
    sum[g] = add(add(add(r[0][g], r[1][g]), add(r[2][g], r[3][g])),
                 add(add(r[4][g], r[5][g]), add(r[6][g], r[7][g])));
  }
  return sum;
}

float value_unit(const quantized_part& part, std::int64_t channel) {
  return std::ldexp(1.0f, operand_exponent(part.format, part.head_dim, kv_side::value,
                                           static_cast<int>(channel / 16)));
}

}  // namespace

per_token_strand::per_token_strand(const attention_head& head, const quantized_part& part)
    : head_(head),
      part_(part),
      cq_{},
      qz_{},
      m_(minus_infinity_row()),
      l_{},
      z_{},
      zc_(1, zero_row),
      o_(head.head_dim, zero_row) {
  for (int g = 0; g < head.num_queries; ++g) {
    const fixed_point_query& q = head.fixed_point[g];
    cq_[g] = mul(head.c, q.unit);
    const std::int32_t sum = std::accumulate(q.qi.begin(), q.qi.end(), std::int32_t{0});
    qz_[g] = mul(cq_[g], static_cast<float>(sum));
  }
}

query_rows per_token_strand::scores_of(std::span<const std::byte> page) const {
  const int tokens = part_.format.tokens_per_page;
  query_rows s(tokens, zero_row);
  const std::vector<std::int16_t> codes = key_codes(part_, page);
  for (int t = 0; t < tokens; ++t) {
    const auto width = static_cast<std::size_t>(head_.head_dim);
    const std::span row = std::span(codes).subspan(t * width, width);
    const scale_position position = part_.layout.scale(kv_side::key, t, 0);
    const float ks = half_to_float(read_half(page, position.scale_byte));
    const float kz = half_to_float(read_half(page, position.zero_byte));
    for (int g = 0; g < head_.num_queries; ++g) {
      const auto dot = static_cast<float>(integer_dot(row, head_.fixed_point[g].qi));  // RN32
      s[t][g] = fma(mul(ks, cq_[g]), dot, mul(kz, qz_[g]));
    }
  }
  return s;
}

// p: one row a token of the page.
void per_token_strand::add_values(std::span<const std::byte> page, std::span<const query_row> p) {
  const float mid = static_cast<float>((1 << part_.format.value_bits) - 1) / 2;
  query_rows scaled_p(p.size(), zero_row);
  for (int t = 0; t < part_.format.tokens_per_page; ++t) {
    const int lane = t % lanes;  // tokens 16i + lane and, after it, 16i + lane + 8
    const scale_position position = part_.layout.scale(kv_side::value, t, 0);
    const float vs = half_to_float(read_half(page, position.scale_byte));
    const float centre = fma(vs, mid, half_to_float(read_half(page, position.zero_byte)));
    for (int g = 0; g < query_columns; ++g) {
      l_[lane][g] = add(l_[lane][g], p[t][g]);
      z_[lane][g] = fma(p[t][g], centre, z_[lane][g]);
      scaled_p[t][g] = mul(p[t][g], vs);
    }
  }
  const half_matrix p_prime = to_half_operand(scaled_p);
  mma_chain(zc_, half_matrix(1, p_prime.rows, half_one), p_prime, head_.arch);
  mma_chain(o_, value_operand(part_, page), p_prime, head_.arch);
}

// The pages of the block that exist. All tokens of one that does not are behind the end of the part
// (s = -inf, p = 0), so leaving it out changes no bit.
void per_token_strand::visit(std::int64_t block_idx, std::span<float> scores) {
  const std::int64_t page_tokens = part_.format.tokens_per_page;
  const std::int64_t first = block_idx * spec::tokens_per_block;
  const std::int64_t num_valid =
      std::min<std::int64_t>(part_.num_tokens - first, spec::tokens_per_block);
  const auto pages = part_.pages.subspan(
      static_cast<std::size_t>(first / page_tokens),
      static_cast<std::size_t>(spec::pages_for_tokens(part_.format, num_valid)));

  query_rows s;  // one row a token of these pages
  for (const std::span<const std::byte> page : pages) {
    const query_rows of_page = scores_of(page);
    s.insert(s.end(), of_page.begin(), of_page.end());
  }
  mask_and_store(s, num_valid, part_.first_position + first, head_.num_queries, scores);

  const softmax_step step = advance_softmax(s, head_.num_queries, m_);
  rescale(l_, step.factor);
  rescale(z_, step.factor);
  rescale(zc_, step.factor);
  rescale(o_, step.factor);
  for (std::int64_t i = 0; i < std::ssize(pages); ++i) {
    add_values(pages[i], std::span(step.p).subspan(i * page_tokens, page_tokens));
  }
}

partial_result per_token_strand::finish() const {
  const float mid = static_cast<float>((1 << part_.format.value_bits) - 1) / 2;
  const query_row z = sum_lanes(z_);
  partial_result result = {m_, sum_lanes(l_), o_};
  for (std::int64_t channel = 0; channel < head_.head_dim; ++channel) {
    const float unit = value_unit(part_, channel);
    for (int g = 0; g < query_columns; ++g) {
      const float y = fma(-mid, zc_[0][g], z[g]);
      result.o[channel][g] = fma(o_[channel][g], unit, y);
    }
  }
  return result;
}

group16_strand::group16_strand(const attention_head& head, const quantized_part& part)
    : head_(head),
      part_(part),
      cs_(std::ldexp(head.c, key_exponent)),
      q_prime_(to_floats(head.q_prime)),
      m_(minus_infinity_row()),
      l_(1, zero_row),
      zc_(head.head_dim / spec::group_size, zero_row),
      o_(head.head_dim, zero_row) {}

// The part of a score that the tokens of a tile share: zero and middle code, less what the middle
// code makes of the rounded b. zeros and scales are rows 0 and 1 of `keys`.
query_row group16_strand::middle_of(const half_matrix& keys, const half_matrix& b) const {
  query_rows k(2, zero_row), sb(1, zero_row);
  mma_chain(k, keys, head_.q, head_.arch);
  mma_chain(sb, head_.mid_units, b, head_.arch);  // b as B: products do not know which factor is A
  query_row mid = zero_row;
  for (int g = 0; g < query_columns; ++g) {
    const float zk = k[0][g], zs = k[1][g];
    mid[g] = mul(sub(fma(1.5f, zs, zk), sb[0][g]), head_.c);
  }
  return mid;
}

query_rows group16_strand::scores_of(std::span<const std::byte> page) const {
  const int tokens = part_.format.tokens_per_page;
  const half_matrix keys = key_operand(part_, page);
  query_rows s(tokens, zero_row);
  for (int first = 0; first < tokens; first += tile) {
    half_matrix zeros_and_scales(2, head_.head_dim);
    half_matrix scaled_q(head_.head_dim, query_columns);  // b
    for (int channel = 0; channel < head_.head_dim; ++channel) {
      const scale_position position = part_.layout.scale(kv_side::key, first, channel);
      zeros_and_scales.at(0, channel) = read_half(page, position.zero_byte);
      const half_bits ks = read_half(page, position.scale_byte);
      zeros_and_scales.at(1, channel) = ks;
      scale_queries(q_prime_[channel], ks, head_.num_queries, &scaled_q.at(channel, 0));
    }
    const query_row mid = middle_of(zeros_and_scales, scaled_q);

    half_matrix tile_keys(tile, head_.head_dim);
    std::copy_n(&keys.values[static_cast<std::size_t>(first) * keys.cols], tile_keys.values.size(),
                tile_keys.values.begin());
    const std::span<query_row> dot = std::span(s).subspan(first, tile);
    mma_chain(dot, tile_keys, scaled_q, head_.arch);
    for (query_row& row : dot) {
      for (int g = 0; g < query_columns; ++g) {
        row[g] = fma(row[g], cs_, mid[g]);
      }
    }
  }
  return s;
}

void group16_strand::visit(std::int64_t block_idx, std::span<float> scores) {
  const int tokens = part_.format.tokens_per_page;
  const std::span<const std::byte> page = part_.pages[block_idx];
  query_rows s = scores_of(page);
  const std::int64_t first = block_idx * tokens;
  mask_and_store(s, part_.num_tokens - first, part_.first_position + first, head_.num_queries,
                 scores);

  const softmax_step step = advance_softmax(s, head_.num_queries, m_);
  rescale(l_, step.factor);
  rescale(zc_, step.factor);
  rescale(o_, step.factor);

  const half_matrix p = to_half_operand(step.p);
  mma_chain(l_, half_matrix(1, tokens, half_one), p, head_.arch);

  const query_rows p_values = to_floats(p);
  const half_matrix values = value_operand(part_, page);
  half_matrix zeros(std::ssize(zc_), tokens);
  for (int group = 0; group < std::ssize(zc_); ++group) {
    half_matrix scaled_p(tokens, query_columns);
    for (int t = 0; t < tokens; ++t) {
      const scale_position position = part_.layout.scale(kv_side::value, t, 16 * group);
      zeros.at(group, t) = read_half(page, position.zero_byte);
      const half_bits vs = read_half(page, position.scale_byte);
      scale_queries(p_values[t], vs, head_.num_queries, &scaled_p.at(t, 0));
    }
    half_matrix group_values(spec::group_size, tokens);
    std::copy_n(&values.values[group_values.values.size() * group], group_values.values.size(),
                group_values.values.begin());
    mma_chain(std::span(o_).subspan(16 * group, spec::group_size), group_values, scaled_p,
              head_.arch);
  }
  mma_chain(zc_, zeros, p, head_.arch);
}

partial_result group16_strand::finish() const {
  partial_result result = {m_, l_[0], o_};
  for (std::int64_t channel = 0; channel < head_.head_dim; ++channel) {
    const float unit = value_unit(part_, channel);
    for (int g = 0; g < query_columns; ++g) {
      result.o[channel][g] = fma(o_[channel][g], unit, zc_[channel / spec::group_size][g]);
    }
  }
  return result;
}

recent_strand::recent_strand(const attention_head& head)
    : head_(head), m_(minus_infinity_row()), l_(1, zero_row), o_(head.head_dim, zero_row) {}

void recent_strand::visit(std::int64_t block_idx, std::span<float> scores) {
  constexpr int block = spec::tokens_per_recent_block;
  const std::int64_t first = block_idx * block;
  const std::int64_t num_valid = std::min<std::int64_t>(head_.input.num_recent - first, block);

  half_matrix keys(block, head_.head_dim);    // slots beyond the end stay +0
  half_matrix values(head_.head_dim, block);  // transposed
  for (std::int64_t t = 0; t < num_valid; ++t) {
    for (std::int64_t channel = 0; channel < head_.head_dim; ++channel) {
      const std::int64_t i = (first + t) * head_.head_dim + channel;
      keys.at(t, channel) = head_.input.recent_k[i];
      values.at(channel, t) = head_.input.recent_v[i];
    }
  }
  query_rows s(block, zero_row);
  mma_chain(s, keys, head_.q, head_.arch);
  for (query_row& row : s) {
    for (float& x : row) x = mul(x, head_.c);
  }
  mask_and_store(s, num_valid, head_.input.num_quantized + head_.input.num_low + first,
                 head_.num_queries, scores);

  const softmax_step step = advance_softmax(s, head_.num_queries, m_);
  rescale(l_, step.factor);
  rescale(o_, step.factor);
  const half_matrix p = to_half_operand(step.p);
  mma_chain(l_, half_matrix(1, block, half_one), p, head_.arch);
  mma_chain(o_, values, p, head_.arch);
}

partial_result recent_strand::finish() const { return {m_, l_[0], o_}; }

}  // namespace kvproof::reference
