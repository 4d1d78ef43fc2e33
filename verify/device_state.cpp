// Buffers and launches of a case, see device_state.hpp.
#include "verify/device_state.hpp"

#include <algorithm>

namespace kvproof::verify {

device_state::device_state(gpu::device& dev, const workload& w, const cache_state& cache)
    : device(dev),
      work(w),
      max_pages(cache.max_pages),
      score_capacity(cache.score_capacity()),
      pages(dev, "pages", std::ssize(cache.pool)),
      page_table(dev, "page_table", std::ssize(cache.page_table) * 4),
      num_quantized(dev, "num_quantized", w.heads() * 4),
      num_recent(dev, "num_recent", w.heads() * 4),
      first_token(dev, "first_token", w.heads() * 4),
      num_new(dev, "num_new", w.heads() * 4),
      k(dev, "k", std::ssize(w.k) * 2),
      v(dev, "v", std::ssize(w.v) * 2),
      recent_k(dev, "recent_k", std::ssize(cache.recent_k) * 2),
      recent_v(dev, "recent_v", std::ssize(cache.recent_v) * 2),
      q(dev, "q", w.batch * cache.q_heads() * w.head_dim * 2),
      out(dev, "out", w.batch * cache.q_heads() * w.head_dim * 4),
      state(dev, "state", w.batch * cache.q_heads() * 2 * 4),
      scores(dev, "scores", w.with_scores ? w.heads() * score_capacity * w.gqa_ratio * 4 : 0),
      workspace(dev, "workspace", gpu::decode_workspace_bytes(decode_arguments({}))) {
  pages.write(cache.pool);
  page_table.write(cache.page_table);
  k.write(w.k);
  v.write(w.v);
  workspace.clear();
  upload_lengths(cache);
  upload_recent(cache);
}

void device_state::upload_lengths(const cache_state& cache) {
  num_quantized.write(cache.num_quantized);
  num_recent.write(cache.num_recent);
}

void device_state::upload_recent(const cache_state& cache) {
  recent_k.write(cache.recent_k);
  recent_v.write(cache.recent_v);
}

void device_state::quantize(const event& e, const cache_state& cache) {
  gpu::quantize_args args{};
  args.format = work.format;
  args.head_dim = work.head_dim;
  args.batch = work.batch;
  args.kv_heads = work.kv_heads;
  args.max_new_tokens = *std::max_element(e.quantize.begin(), e.quantize.end());
  if (e.from_recent) {
    args.k = recent_k.get();
    args.v = recent_v.get();
    args.stride_token = work.head_dim;
    args.stride_head = std::int64_t{work.recent_capacity} * work.head_dim;
    args.stride_batch = args.stride_head * work.kv_heads;
  } else {
    args.stride_head = work.head_dim;
    args.stride_token = std::int64_t{work.kv_heads} * work.head_dim;
    args.stride_batch = work.source_tokens * args.stride_token;
    // All heads of an event start at the same source row.
    const std::int64_t skip = cache.quantize_first.front() * args.stride_token * 2;
    args.k = k.get() + skip;
    args.v = v.get() + skip;
  }
  first_token.write(cache.num_quantized);
  num_new.write(e.quantize);
  args.first_token = first_token.get();
  args.num_new = num_new.get();
  args.page_table = page_table.get();
  args.max_pages = max_pages;
  args.pages = pages.get();
  gpu::quantize(device, args);
}

void device_state::attend(const event& e) {
  q.write(e.q);
  out.poison();
  state.poison();
  scores.poison();
  gpu::decode(device, decode_arguments(workspace.get()));
}

std::array<fenced_buffer*, 15> device_state::buffers() {
  return {&pages, &page_table, &num_quantized, &num_recent, &first_token, &num_new,
          &k,     &v,          &recent_k,      &recent_v,   &q,           &out,
          &state, &scores,     &workspace};
}

gpu::decode_args device_state::decode_arguments(gpu::device_ptr workspace_ptr) const {
  gpu::decode_args args{};
  args.format = work.format;
  args.head_dim = work.head_dim;
  args.batch = work.batch;
  args.kv_heads = work.kv_heads;
  args.gqa_ratio = work.gqa_ratio;
  args.softmax_scale = work.softmax_scale;
  args.max_quantized = max_pages * spec::tokens_per_page;
  args.equal_lengths = work.equal_lengths;
  args.q = q.get();
  args.page_table = page_table.get();
  args.max_pages = max_pages;
  args.pages = pages.get();
  args.num_quantized = num_quantized.get();
  args.num_recent = num_recent.get();
  args.recent_k = work.recent_capacity > 0 ? recent_k.get() : gpu::device_ptr{};
  args.recent_v = work.recent_capacity > 0 ? recent_v.get() : gpu::device_ptr{};
  args.recent_capacity = work.recent_capacity;
  args.out = out.get();
  args.state = state.get();
  args.scores = work.with_scores ? scores.get() : gpu::device_ptr{};
  args.score_capacity = score_capacity;
  args.workspace = workspace_ptr;
  return args;
}

}  // namespace kvproof::verify
