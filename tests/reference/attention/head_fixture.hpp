// One KV head for tests: queries, a quantized cache in pages and a recent part, with everything
// that a decode_input refers to.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "reference/attention/decode_attention.hpp"
#include "reference/formats/page_codec.hpp"
#include "tests/reference/formats/page_pool.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {

struct head_shape {
  spec::format_id format = spec::format_id::k8v4;
  int head_dim = 128;
  int gqa_ratio = 4;
  std::int64_t num_quantized = 0;
  std::int64_t num_recent = 0;
};

class head_fixture {
 public:
  // k and v are [num_quantized + num_recent][head_dim].
  head_fixture(const head_shape& shape_, std::vector<half_bits> q_, std::vector<half_bits> k_,
               std::vector<half_bits> v_)
      : shape(shape_),
        softmax_scale(1 / std::sqrt(static_cast<float>(shape_.head_dim))),
        q(std::move(q_)),
        k(std::move(k_)),
        v(std::move(v_)),
        pool(spec::format_of(shape.format), shape.head_dim,
             spec::pages_for_tokens(shape.num_quantized)) {
    const std::size_t quantized = quantized_size();
    reference::append_tokens(spec::format_of(shape.format), shape.head_dim,
                             std::span(k).first(quantized), std::span(v).first(quantized), 0,
                             pool.writable());
  }

  [[nodiscard]] reference::decode_input input() const {
    pages = pool.readable();
    return {shape.format,
            shape.head_dim,
            shape.gqa_ratio,
            softmax_scale,
            q,
            shape.num_quantized,
            pages,
            shape.num_recent,
            std::span(k).subspan(quantized_size()),
            std::span(v).subspan(quantized_size())};
  }

  head_shape shape;
  float softmax_scale;
  std::vector<half_bits> q, k, v;
  page_pool pool;

 private:
  [[nodiscard]] std::size_t quantized_size() const {
    return static_cast<std::size_t>(shape.num_quantized * shape.head_dim);
  }

  mutable std::vector<std::span<const std::byte>> pages;  // refreshed by input()
};

// Normal queries, keys and values; `sharpness` scales the queries and so the logits.
inline head_fixture random_head(const head_shape& shape, std::uint64_t seed, double sharpness = 1) {
  seeded_values random(seed);
  const std::int64_t size = (shape.num_quantized + shape.num_recent) * shape.head_dim;
  std::vector<half_bits> q =
      random.normal_halves(std::int64_t{shape.gqa_ratio} * shape.head_dim, sharpness);
  std::vector<half_bits> k = random.normal_halves(size);
  return {shape, std::move(q), std::move(k), random.normal_halves(size)};
}

}  // namespace kvproof::tests
