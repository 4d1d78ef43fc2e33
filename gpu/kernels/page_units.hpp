// How a CTA that writes a page is cut, for kernels and launchers: a warp makes a unit, 2048
// elements of one side (K or V).
#pragma once

#include "reference/spec/kv_format.hpp"

namespace kvproof::gpu {

constexpr int unit_elements = 2048;
constexpr int unit_tokens(int head_dim) { return unit_elements / head_dim; }
constexpr int units_of_page(spec::format_id format, int head_dim) {  // of one side
  return spec::format_of(format).tokens_per_page / unit_tokens(head_dim);
}
constexpr int quantize_threads(spec::format_id format, int head_dim) {
  return 2 * units_of_page(format, head_dim) * 32;
}
// A warp makes the same unit of both sides of a K4V2 page.
constexpr int demote_threads(int head_dim) {
  return units_of_page(spec::format_id::k4v2, head_dim) * 32;
}

}  // namespace kvproof::gpu
