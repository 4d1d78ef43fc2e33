// See drawn_workload.hpp.
#include "verify/drawn_workload.hpp"

#include <cmath>

namespace kvproof::verify {

workload drawn_workload(const drawn_options& o, std::uint64_t seed) {
  workload w;
  w.format = o.format;
  w.head_dim = o.head_dim;
  w.batch = static_cast<int>(o.batch);
  w.kv_heads = synthetic_kv_heads;
  w.gqa_ratio = o.gqa_ratio;
  w.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(o.head_dim)));
  w.source_tokens = o.source_tokens;
  w.seed = seed;
  const spec::kv_format& format = spec::format_of(o.format);
  const drawn_shape rows{w.batch, w.source_tokens, w.kv_heads, w.head_dim};
  w.k = draw(seed, "k", tensor::k, o.regime, format, rows);
  w.v = draw(seed, "v", tensor::v, o.regime, format, rows);
  return w;
}

}  // namespace kvproof::verify
