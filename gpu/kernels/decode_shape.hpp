// Shapes of a decode CTA that kernel and launcher must agree on.
#pragma once

#include <cstdint>

#include "reference/spec/attention_plan.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

inline constexpr int decode_warps = spec::strands_per_split;
inline constexpr int decode_threads = 32 * decode_warps;

// A split's partial result: o [G][head_dim], m [G], l [G], padded so that rows stay 16-byte
// aligned.
constexpr std::int64_t decode_partial_floats(int ratio, int head_dim) {
  return (std::int64_t{ratio} * (head_dim + 2) + 3) / 4 * 4;
}

// The queries of a head as MMA operands (static shared memory): in fixed point, or fp16 as stored
// and in two short numbers.
constexpr int decode_query_bytes(const spec::kv_format& format, int head_dim, int ratio) {
  if (format.scales == spec::scale_layout::per_token)
    return head_dim / 32 * 256 * (ratio <= 4 ? 1 : 2);
  return head_dim / 16 * 256 * (ratio <= 4 ? 2 : 3);
}

// Shared memory of an SM is 228 KB, 1 KB of it reserved a CTA. Two CTAs hide each other's split
// ends (three where a page is small), so the ring is as deep as that allows, at least two pages a
// warp; where not even that fits, one CTA with a deeper ring.
struct decode_shape {
  int ctas_per_sm;
  int stages;           // pages in the ring of a warp
  int exchange_stride;  // floats of a query's row where strands meet
  int dynamic_shared_bytes;
};
// `tiers`: pages of both tiers of DiffKV, `format` being the high one.
constexpr decode_shape decode_shape_of(const spec::kv_format& format, int head_dim, int ratio,
                                       bool tiers) {
  const int stride = head_dim + 4;  // +4 keeps rows off each other's banks
  const int exchange_bytes = decode_warps * ratio * stride * 4;
  // The larger tier's content is what a page has room for.
  const std::int64_t page_bytes =
      tiers ? spec::page_size_bytes(format, head_dim) : spec::page_content_bytes(format, head_dim);
  const int stage_bytes = decode_warps * static_cast<int>(page_bytes);  // of all four rings
  for (int ctas = head_dim == 64 && !tiers ? 3 : 2; ctas > 0; --ctas) {
    // Less the reserve and the static arrays.
    const int available = 233472 / ctas - 1024 - 768 - decode_query_bytes(format, head_dim, ratio);
    const int fitting = (available - exchange_bytes) / stage_bytes;
    if (fitting < 2) continue;
    const int stages = fitting > 4 ? 4 : fitting;
    return {ctas, stages, stride, stages * stage_bytes + exchange_bytes};
  }
  return {};
}

}  // namespace kvproof::gpu
