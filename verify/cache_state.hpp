// The reference's side of a case: the cache of every (sequence, KV head) on the host, filled and
// attended by reference/ alone. The device's side is device_state.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verify/paged_cache.hpp"
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

  // An event in five parts, called in this order.
  void append(const event& e);        // source rows join the recent part
  void quantize(const event& e);      // source rows or the recent part become quantized tokens
  void quantize_low(const event& e);  // source rows become tokens of the low tier
  void demote(const event& e);        // quantized tokens are written to the low tier
  [[nodiscard]] expected_attention attend(const event& e) const;

  // Scores that an attend() has to write.
  [[nodiscard]] std::int64_t score_elements() const;
  [[nodiscard]] std::int64_t q_heads() const;
  [[nodiscard]] std::int64_t score_capacity() const;  // tokens
  // Element of k and v where a row of a head starts.
  [[nodiscard]] std::int64_t source_offset(std::int64_t head, std::int64_t row) const;
  // First token of the low tier that a demotion writes, [batch][kv_heads].
  [[nodiscard]] std::vector<std::int32_t> demoted_first(const demotion& d) const;

  const workload& work;
  paged_cache quantized;  // of the workload's format; with tiers the high one
  paged_cache low;        // k4v2: the low tier, or what demotions write; mostly without pool
  std::vector<std::int32_t> num_recent;       // [batch][kv_heads]
  std::vector<half_bits> recent_k, recent_v;  // [batch][kv_heads][recent_capacity][head_dim]
  std::vector<std::int64_t> source_rows;      // rows of k and v used so far, per head
  std::vector<std::int64_t> quantize_first;   // first source row that this event quantizes

 private:
  cache_state(const workload& w, tiered_caches caches);
};

}  // namespace kvproof::verify
