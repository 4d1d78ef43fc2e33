// See significance.hpp.
#include "gpu/launch/significance.hpp"

#include <algorithm>

#include "gpu/launch/score_update.hpp"

namespace kvproof::gpu {
namespace {

// Sequences first .. first + count - 1 of the batch; `largest`: count of the largest slice.
decode_args slice_of(const decode_args& a, int first, int count, int largest) {
  const std::int64_t kv_heads = std::int64_t{first} * a.kv_heads;
  const std::int64_t q_heads = kv_heads * a.gqa_ratio;
  decode_args s = a;
  s.batch = count;
  s.q = a.q + q_heads * a.head_dim * 2;
  s.page_table = a.page_table + kv_heads * a.max_pages * 4;
  s.num_quantized = a.num_quantized + kv_heads * 4;
  if (a.num_low != device_ptr{}) s.num_low = a.num_low + kv_heads * 4;
  s.num_recent = a.num_recent + kv_heads * 4;
  if (a.recent_capacity > 0) {
    const std::int64_t recent = kv_heads * a.recent_capacity * a.head_dim * 2;
    s.recent_k = a.recent_k + recent;
    s.recent_v = a.recent_v + recent;
  }
  s.out = a.out + q_heads * a.head_dim * 4;
  s.state = a.state + q_heads * 2 * 4;
  // A smaller slice takes the last tickets: were they the first, its partials would lie on tickets.
  decode_args whole = a;
  whole.batch = largest;
  s.workspace = a.workspace + (decode_ticket_bytes(whole) - decode_ticket_bytes(s));
  return s;
}

}  // namespace

void decode_with_significance(device& dev, const significance_args& a, stream* s) {
  const launch_checks check("decode_with_significance");
  check.at_least("slice", a.slice, 1);
  check.at_least("batch", a.decode.batch, 0);
  check.at_least("kv_heads", a.decode.kv_heads, 0);
  if (a.decode.batch == 0 || a.decode.kv_heads == 0) return;
  check.at_least("max_tokens", a.max_tokens, a.decode.max_quantized);
  const int largest = std::min(a.slice, a.decode.batch);
  score_update_args update{};
  update.batch = largest;
  update.kv_heads = a.decode.kv_heads;
  update.gqa_ratio = a.decode.gqa_ratio;
  update.max_tokens = a.max_tokens;
  update.scores = a.decode.scores;
  update.score_capacity = a.decode.score_capacity;
  update.state = a.decode.state;
  update.num_tokens = a.num_tokens;
  update.running = a.running;
  update.running_capacity = a.running_capacity;
  check_score_update(check, update);  // now: decode() checks its own before its first launch
  for (int first = 0; first < a.decode.batch; first += largest) {
    const decode_args d =
        slice_of(a.decode, first, std::min(largest, a.decode.batch - first), largest);
    decode(dev, d, s);
    const std::int64_t heads = std::int64_t{first} * a.decode.kv_heads;
    update.batch = d.batch;
    update.state = d.state;
    update.num_tokens = a.num_tokens + heads * 4;
    update.running = a.running + heads * a.running_capacity * 4;
    score_update(dev, update, s);
  }
}

}  // namespace kvproof::gpu
