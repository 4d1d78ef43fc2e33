// The reference's side of a case: the cache of every (sequence, KV head) on the host, filled and
// attended by reference/ alone. The device's side is device_state.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verify/workload.hpp"

namespace kvproof::verify {

// What decode attention must give, as fp32 bit patterns. Scores that no kernel may write are
// poison_word.
struct expected_attention {
  std::vector<std::uint32_t> out;     // [batch][q_heads][head_dim]
  std::vector<std::uint32_t> state;   // [batch][q_heads][2]: m, l
  std::vector<std::uint32_t> scores;  // [batch][kv_heads][score_capacity][gqa_ratio], or empty
};

struct cache_state {
  // Empty caches; page ids in an order drawn from the workload's seed, which must outlive this.
  explicit cache_state(const workload& w);

  // An event in three parts, called in this order.
  void append(const event& e);    // source rows join the recent part
  void quantize(const event& e);  // source rows or the recent part become quantized tokens
  [[nodiscard]] expected_attention attend(const event& e) const;

  // Scores that an attend() has to write.
  [[nodiscard]] std::int64_t score_elements() const;
  [[nodiscard]] std::int64_t q_heads() const;
  [[nodiscard]] std::int64_t score_capacity() const;  // tokens
  // Element of k and v where a row of a head starts.
  [[nodiscard]] std::int64_t source_offset(std::int64_t head, std::int64_t row) const;
  [[nodiscard]] std::span<std::byte> page(std::int64_t head, std::int64_t index);
  [[nodiscard]] std::span<const std::byte> page(std::int64_t head, std::int64_t index) const;

  const workload& work;
  std::int64_t page_bytes = 0;
  int max_pages = 0;
  std::vector<std::byte> pool;                // [num_pages][page_bytes]
  std::vector<std::int32_t> page_table;       // [batch][kv_heads][max_pages]
  std::vector<std::int32_t> num_quantized;    // [batch][kv_heads]
  std::vector<std::int32_t> num_recent;       // [batch][kv_heads]
  std::vector<half_bits> recent_k, recent_v;  // [batch][kv_heads][recent_capacity][head_dim]
  std::vector<std::int64_t> source_rows;      // rows of k and v used so far, per head
  std::vector<std::int64_t> quantize_first;   // first source row that this event quantizes
};

}  // namespace kvproof::verify
