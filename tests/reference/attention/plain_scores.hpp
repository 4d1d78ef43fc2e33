// Scores transcribed from decode_attention.md sections 1 and 2: one token and one query at a time,
// from the unpacked cache, with 64-bit integers and the scalar tensor-core model.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core.hpp"
#include "tests/reference/attention/head_fixture.hpp"

namespace kvproof::tests {

inline std::span<const half_bits> query_of(const head_fixture& head, std::size_t query) {
  const auto width = static_cast<std::size_t>(head.shape.head_dim);
  return std::span(head.q).subspan(query * width, width);
}

inline float base_2_scale(const head_fixture& head) {  // c
  return static_cast<float>(double{head.softmax_scale} * 1.4426950408889634);
}

// k8v4, k4v2: s of the first n tokens in the pool for one query head.
inline std::vector<float> per_token_scores(const head_fixture& head, const spec::kv_format& format,
                                           std::int64_t n, const page_pool& pool,
                                           std::size_t query) {
  using reference::half_to_float;
  const auto width = static_cast<std::size_t>(head.shape.head_dim);
  const auto q = [&](std::size_t channel) { return half_to_float(query_of(head, query)[channel]); };
  const float c = base_2_scale(head);

  float qm = 0;
  for (std::size_t channel = 0; channel < width; ++channel) {
    qm = std::max(qm, std::fabs(q(channel)));
  }
  const float r = qm == 0 ? 0.0f : 32639.0f / qm;
  std::vector<std::int64_t> qi;
  std::int64_t sum = 0;
  for (std::size_t channel = 0; channel < width; ++channel) {
    const float product = q(channel) * r;
    qi.push_back(static_cast<std::int64_t>(std::nearbyint(product)));
    sum += qi.back();
  }
  const float step = qm / 32639.0f;
  const float cq = c * step;
  const float qz = cq * static_cast<float>(sum);

  const reference::unpacked_tokens tokens =
      reference::unpack_tokens(format, head.shape.head_dim, n, pool.readable());
  std::vector<float> scores;
  for (std::size_t t = 0; t < static_cast<std::size_t>(n); ++t) {
    std::int64_t dot = 0;
    for (std::size_t channel = 0; channel < width; ++channel) {
      dot += tokens.key_codes[t * width + channel] * qi[channel];
    }
    const float scaled = half_to_float(tokens.key_scales[t]) * cq;
    const float offset = half_to_float(tokens.key_zeros[t]) * qz;
    scores.push_back(std::fma(scaled, static_cast<float>(dot), offset));
  }
  return scores;
}

// int2_g16: one tile of 16 tokens. bh and bl are per channel, zk belongs to all tokens.
struct group16_tile {
  std::vector<half_bits> bh, bl;
  float zk;
  std::array<float, 16> dh, dl, s;
};

// kv_formats.md section 5: p of 2-bit keys, eK = 24 - p.
inline int two_bit_shift(int head_dim, std::size_t channel) {
  constexpr std::array shifts_128 = {4, 6, 4, 6, 8, 4, 6, 8};
  constexpr std::array shifts_64 = {4, 6, 4, 6};
  return head_dim == 128 ? shifts_128[channel / 16] : shifts_64[channel / 16];
}

inline std::vector<group16_tile> group16_tiles(const head_fixture& head, std::size_t query) {
  using reference::float_to_half;
  using reference::half_to_float;
  const int head_dim = head.shape.head_dim;
  const auto width = static_cast<std::size_t>(head_dim);
  const std::span<const half_bits> q = query_of(head, query);
  const float c = base_2_scale(head);
  const auto chain = [](std::span<const half_bits> a, std::span<const half_bits> b) {
    return reference::mma_dot(a, b, 0.0f, reference::architecture::sm_90);
  };
  const reference::unpacked_tokens tokens = reference::unpack_tokens(
      spec::format_of(head.shape.format), head_dim, head.shape.num_quantized, head.pool.readable());
  std::vector<group16_tile> tiles;
  for (std::size_t first = 0; first < tokens.key_scales.size(); first += width) {
    const auto scales = std::span(tokens.key_scales).subspan(first, width);
    const auto zeros = std::span(tokens.key_zeros).subspan(first, width);
    const auto scaled = [&](float number, std::size_t channel) {  // rn16(rn16(..) * ks)
      const half_bits lowered =
          float_to_half(std::ldexp(number, 4 - two_bit_shift(head_dim, channel)));
      return float_to_half(half_to_float(lowered) * half_to_float(scales[channel]));
    };
    group16_tile tile = {};
    for (std::size_t channel = 0; channel < width; ++channel) {
      const float high = half_to_float(static_cast<half_bits>(q[channel] / 64 * 64));
      tile.bh.push_back(scaled(high, channel));
      tile.bl.push_back(scaled(half_to_float(q[channel]) - high, channel));
    }
    tile.zk = chain(zeros, q);
    const float zero_term = tile.zk * c;
    for (std::size_t tt = 0; tt < 16; ++tt) {
      const std::size_t row = (16 * tiles.size() + tt) * width;
      std::vector<half_bits> codes;
      for (std::size_t channel = 0; channel < width; ++channel) {
        codes.push_back(static_cast<half_bits>(tokens.key_codes[row + channel]
                                               << two_bit_shift(head_dim, channel)));
      }
      tile.dh[tt] = chain(codes, tile.bh);
      tile.dl[tt] = chain(codes, tile.bl);
      const float dot = tile.dh[tt] + tile.dl[tt];
      tile.s[tt] = std::fma(dot, std::ldexp(c, 20), zero_term);
    }
    tiles.push_back(tile);
  }
  return tiles;
}

// s of all positions of the cache for one query head.
inline std::vector<float> plain_scores(const head_fixture& head, std::size_t query) {
  const head_shape& shape = head.shape;
  std::vector<float> scores;
  if (spec::format_of(shape.format).scales == spec::scale_layout::per_token) {
    scores = per_token_scores(head, spec::format_of(shape.format), shape.num_quantized, head.pool,
                              query);
  } else {
    for (const group16_tile& tile : group16_tiles(head, query)) {
      scores.insert(scores.end(), tile.s.begin(), tile.s.end());
    }
  }
  const std::vector<float> low = per_token_scores(head, spec::format_of(spec::format_id::k4v2),
                                                  shape.num_low, head.low_pool, query);
  scores.insert(scores.end(), low.begin(), low.end());
  const auto width = static_cast<std::size_t>(shape.head_dim);
  for (std::size_t t = scores.size(); t < static_cast<std::size_t>(shape.num_tokens()); ++t) {
    const float dot =
        reference::mma_dot(std::span(head.k).subspan(t * width, width), query_of(head, query), 0.0f,
                           reference::architecture::sm_90);
    scores.push_back(dot * base_2_scale(head));
  }
  return scores;
}

}  // namespace kvproof::tests
