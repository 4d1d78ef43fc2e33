// Scores of the quantized part of k8v4 and k4v2, transcribed from decode_attention.md section 1:
// one token and one query at a time, from the unpacked cache, with 64-bit integers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "tests/reference/attention/head_fixture.hpp"

namespace kvproof::tests {

// [num_quantized]: s of every token for one query head.
inline std::vector<float> per_token_scores(const head_fixture& head, std::size_t query) {
  using reference::half_to_float;
  const auto width = static_cast<std::size_t>(head.shape.head_dim);
  const auto q = [&](std::size_t channel) {
    return half_to_float(head.q[query * width + channel]);
  };
  const auto c = static_cast<float>(double{head.softmax_scale} * 1.4426950408889634);

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
      reference::unpack_tokens(spec::format_of(head.shape.format), head.shape.head_dim,
                               head.shape.num_quantized, head.pool.readable());
  std::vector<float> scores;
  for (std::size_t t = 0; t < static_cast<std::size_t>(head.shape.num_quantized); ++t) {
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

}  // namespace kvproof::tests
