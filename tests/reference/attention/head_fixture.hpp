// One KV head for tests: queries, a quantized cache in pages (with two tiers: two of them) and a
// recent part, with everything that a decode_input refers to.
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
  std::int64_t num_low = 0;  // of k4v2, between the other two

  [[nodiscard]] std::int64_t num_tokens() const { return num_quantized + num_low + num_recent; }
};

class head_fixture {
 public:
  // k and v are [num_quantized + num_low + num_recent][head_dim].
  head_fixture(const head_shape& shape_, std::vector<half_bits> q_, std::vector<half_bits> k_,
               std::vector<half_bits> v_)
      : shape(shape_),
        softmax_scale(1 / std::sqrt(static_cast<float>(shape_.head_dim))),
        q(std::move(q_)),
        k(std::move(k_)),
        v(std::move(v_)),
        pool(filled_pool(shape.format, 0, shape.num_quantized)),
        low_pool(filled_pool(spec::format_id::k4v2, shape.num_quantized, shape.num_low)) {}

  [[nodiscard]] reference::decode_input input() const {
    pages = pool.readable();
    low_pages = low_pool.readable();
    const std::int64_t first_recent = shape.num_quantized + shape.num_low;
    return {shape.format,
            shape.head_dim,
            shape.gqa_ratio,
            softmax_scale,
            q,
            shape.num_quantized,
            pages,
            shape.num_recent,
            rows(k, first_recent, shape.num_recent),
            rows(v, first_recent, shape.num_recent),
            shape.num_low,
            low_pages};
  }

  head_shape shape;
  float softmax_scale;
  std::vector<half_bits> q, k, v;
  page_pool pool, low_pool;

 private:
  [[nodiscard]] std::span<const half_bits> rows(const std::vector<half_bits>& x, std::int64_t first,
                                                std::int64_t count) const {
    return std::span(x).subspan(static_cast<std::size_t>(first * shape.head_dim),
                                static_cast<std::size_t>(count * shape.head_dim));
  }
  [[nodiscard]] page_pool filled_pool(spec::format_id id, std::int64_t first,
                                      std::int64_t count) const {
    const spec::kv_format& format = spec::format_of(id);
    page_pool result(format, shape.head_dim, spec::pages_for_tokens(format, count));
    reference::append_tokens(format, shape.head_dim, rows(k, first, count), rows(v, first, count),
                             0, result.writable());
    return result;
  }

  mutable std::vector<std::span<const std::byte>> pages, low_pages;  // refreshed by input()
};

// Normal queries, keys and values; `sharpness` scales the queries and so the logits.
inline head_fixture random_head(const head_shape& shape, std::uint64_t seed, double sharpness = 1) {
  seeded_values random(seed);
  const std::int64_t size = shape.num_tokens() * shape.head_dim;
  std::vector<half_bits> q =
      random.normal_halves(std::int64_t{shape.gqa_ratio} * shape.head_dim, sharpness);
  std::vector<half_bits> k = random.normal_halves(size);
  return {shape, std::move(q), std::move(k), random.normal_halves(size)};
}

}  // namespace kvproof::tests
