// One strand: an online softmax over some blocks of the cache. Three kinds: pages with per-token
// scales, pages with scales per group of 16, and the recent fp16 tokens. decode_attention.md
// sections 1 and 2; each kind keeps the sums that its section names.
//
// visit() takes one block, counted from the beginning of the part, and updates the softmax once.
// `scores` is the score output of the head, [position][G]; visit() writes the rows of its tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "reference/attention/attention_head.hpp"
#include "reference/attention/online_softmax.hpp"

namespace kvproof::reference {

class per_token_strand {
 public:
  per_token_strand(const attention_head& head, const quantized_part& part);
  void visit(std::int64_t block_idx, std::span<float> scores);
  [[nodiscard]] partial_result finish() const;

 private:
  [[nodiscard]] query_rows scores_of(std::span<const std::byte> page) const;
  void add_values(std::span<const std::byte> page, std::span<const query_row> p);

  static constexpr int lanes = 8;  // partial sums of l and z
  const attention_head& head_;
  const quantized_part& part_;
  query_row cq_;  // c * the unit of the fixed-point query
  query_row qz_;  // cq * sum of qi
  query_row m_;
  std::array<query_row, lanes> l_, z_;
  query_rows zc_;  // [1]
  query_rows o_;   // [head_dim]
};

class group16_strand {
 public:
  group16_strand(const attention_head& head, const quantized_part& part);
  void visit(std::int64_t block_idx, std::span<float> scores);
  [[nodiscard]] partial_result finish() const;

 private:
  [[nodiscard]] query_row middle_of(const half_matrix& keys, const half_matrix& b) const;
  [[nodiscard]] query_rows scores_of(std::span<const std::byte> page) const;

  const attention_head& head_;
  const quantized_part& part_;
  float cs_;            // c * 2^E
  query_rows q_prime_;  // [head_dim], as numbers
  query_row m_;
  query_rows l_;   // [1]
  query_rows zc_;  // [head_dim / 16]
  query_rows o_;   // [head_dim]
};

class recent_strand {
 public:
  explicit recent_strand(const attention_head& head);
  void visit(std::int64_t block_idx, std::span<float> scores);
  [[nodiscard]] partial_result finish() const;

 private:
  const attention_head& head_;
  query_row m_;
  query_rows l_;  // [1]
  query_rows o_;  // [head_dim]
};

}  // namespace kvproof::reference
