// Buffers and launches of a case, see device_state.hpp.
#include "verify/device_state.hpp"

#include <algorithm>

#include "gpu/launch/demote.hpp"
#include "gpu/launch/gather_quantize.hpp"

namespace kvproof::verify {

device_state::device_state(gpu::device& dev, const workload& w, const cache_state& cache)
    : device(dev),
      work(w),
      max_pages(cache.quantized.max_pages),
      max_low_pages(cache.low.max_pages),
      max_quantized(static_cast<int>(cache.quantized.most_tokens())),
      max_low(w.tiers ? static_cast<int>(cache.low.most_tokens()) : 0),
      score_capacity(cache.score_capacity()),
      pages(dev, "pages", std::ssize(*cache.quantized.pool)),
      page_table(dev, "page_table", std::ssize(cache.quantized.table) * 4),
      num_quantized(dev, "num_quantized", w.heads() * 4),
      num_low(dev, "num_low", w.heads() * 4),
      num_recent(dev, "num_recent", w.heads() * 4),
      first_token(dev, "first_token", w.heads() * 4),
      num_new(dev, "num_new", w.heads() * 4),
      lists(dev, "lists", w.heads() * w.list_capacity * 4),
      low_pages(dev, "low_pages", w.tiers ? 0 : std::ssize(*cache.low.pool)),
      low_table(dev, "low_table", std::ssize(cache.low.table) * 4),
      k(dev, "k", std::ssize(w.k) * 2),
      v(dev, "v", std::ssize(w.v) * 2),
      recent_k(dev, "recent_k", std::ssize(cache.recent_k) * 2),
      recent_v(dev, "recent_v", std::ssize(cache.recent_v) * 2),
      q(dev, "q", w.batch * cache.q_heads() * w.head_dim * 2),
      out(dev, "out", w.batch * cache.q_heads() * w.head_dim * 4),
      state(dev, "state", w.batch * cache.q_heads() * 2 * 4),
      scores(dev, "scores", w.with_scores ? w.heads() * score_capacity * w.gqa_ratio * 4 : 0),
      workspace(dev, "workspace", gpu::decode_workspace_bytes(decode_arguments({}))) {
  pages.write(*cache.quantized.pool);
  page_table.write(cache.quantized.table);
  if (!w.tiers) low_pages.write(*cache.low.pool);
  low_table.write(cache.low.table);
  k.write(w.k);
  v.write(w.v);
  workspace.clear();
  upload_lengths(cache);
  upload_recent(cache);
}

void device_state::upload_lengths(const cache_state& cache) {
  num_quantized.write(cache.quantized.num_tokens);
  num_low.write(cache.low.num_tokens);
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
    // All heads of an event start at the same source row; lists count from row 0.
    set_source_rows(args, e.gather.empty() ? cache.quantize_first.front() : 0);
  }
  first_token.write(cache.quantized.num_tokens);
  num_new.write(e.quantize);
  args.first_token = first_token.get();
  args.num_new = num_new.get();
  args.page_table = page_table.get();
  args.max_pages = max_pages;
  args.pages = pages.get();
  if (e.gather.empty()) return gpu::quantize(device, args);
  lists.write(e.gather);
  gpu::gather_quantize(device, {args, lists.get(), work.list_capacity});
}

void device_state::quantize_low(const event& e, const cache_state& cache) {
  gpu::quantize_args args{};
  args.format = cache.low.format;
  args.head_dim = work.head_dim;
  args.batch = work.batch;
  args.kv_heads = work.kv_heads;
  args.max_new_tokens = *std::max_element(e.quantize_low.begin(), e.quantize_low.end());
  set_source_rows(args, e.low_first_row);
  first_token.write(cache.low.num_tokens);
  num_new.write(e.quantize_low);
  args.first_token = first_token.get();
  args.num_new = num_new.get();
  args.page_table = low_table.get();
  args.max_pages = max_low_pages;
  args.pages = low_pool();
  gpu::quantize(device, args);
}

void device_state::set_source_rows(gpu::quantize_args& args, std::int64_t first_row) const {
  args.stride_head = work.head_dim;
  args.stride_token = std::int64_t{work.kv_heads} * work.head_dim;
  args.stride_batch = work.source_tokens * args.stride_token;
  args.k = k.get() + first_row * args.stride_token * 2;
  args.v = v.get() + first_row * args.stride_token * 2;
}

gpu::device_ptr device_state::low_pool() const {
  return work.tiers ? pages.get() : low_pages.get();
}

void device_state::demote(const event& e, const cache_state& cache) {
  const demotion& d = e.demote;
  first_token.write(cache.demoted_first(d));
  num_new.write(d.num_tokens);
  lists.write(d.tokens);
  gpu::demote_args args{};
  args.head_dim = work.head_dim;
  args.batch = work.batch;
  args.kv_heads = work.kv_heads;
  args.max_tokens = work.list_capacity;
  args.tokens = lists.get();
  args.num_tokens = num_new.get();
  args.from_table = page_table.get();
  args.max_from_pages = max_pages;
  args.from_pages = pages.get();
  args.first_token = first_token.get();
  args.to_table = low_table.get();
  args.max_to_pages = max_low_pages;
  args.to_pages = low_pool();
  args.mode = d.replace_from.empty() ? gpu::demote_mode::append : gpu::demote_mode::replace;
  gpu::demote(device, args);
}

void device_state::attend(const event& e) {
  q.write(e.q);
  out.poison();
  state.poison();
  scores.poison();
  gpu::decode(device, decode_arguments(workspace.get()));
}

std::array<fenced_buffer*, 19> device_state::buffers() {
  return {&pages, &page_table, &num_quantized, &num_low, &num_recent, &first_token, &num_new,
          &lists, &low_pages,  &low_table,     &k,       &v,          &recent_k,    &recent_v,
          &q,     &out,        &state,         &scores,  &workspace};
}

gpu::decode_args device_state::decode_arguments(gpu::device_ptr workspace_ptr) const {
  gpu::decode_args args{};
  args.format = work.format;
  args.head_dim = work.head_dim;
  args.batch = work.batch;
  args.kv_heads = work.kv_heads;
  args.gqa_ratio = work.gqa_ratio;
  args.softmax_scale = work.softmax_scale;
  args.max_quantized = max_quantized;
  args.max_low = max_low;
  args.equal_lengths = work.equal_lengths;
  args.q = q.get();
  args.page_table = page_table.get();
  args.max_pages = max_pages;
  args.pages = pages.get();
  args.num_quantized = num_quantized.get();
  if (work.tiers) args.num_low = num_low.get();
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
