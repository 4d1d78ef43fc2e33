// Launcher of the decode kernels: a grid that fills the device, or one CTA a (head, split) where
// there are fewer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <span>

#include "gpu/kernels/decode_shape.hpp"
#include "gpu/kernels/kernel_params.hpp"
#include "gpu/launch/launch.hpp"
#include "gpu/launch/launch_checks.hpp"
#include "gpu/launch/page_grid.hpp"
#include "reference/spec/attention_plan.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

constexpr std::int64_t workspace_alignment = 256;

bool has_tiers(const decode_args& a) { return a.num_low != device_ptr{}; }

// The most splits that a part of up to max_tokens tokens can have.
std::int64_t most_splits_of_part(int max_tokens) {
  return std::max(spec::plan_splits(max_tokens).num_splits,
                  spec::plan_splits(std::min(max_tokens, 8192)).num_splits);
}
// The same of a head, the recent part included.
std::int64_t most_splits(const decode_args& a) {
  return most_splits_of_part(a.max_quantized) +
         (has_tiers(a) ? most_splits_of_part(a.max_low) : 0) + (a.recent_capacity > 0 ? 1 : 0);
}

void validate(const decode_args& a) {
  const launch_checks check("decode");
  check.head_dim(a.head_dim);
  check.ratio(a.gqa_ratio);
  check.at_least("batch", a.batch, 0);
  check.at_least("kv_heads", a.kv_heads, 0);
  if (a.batch == 0 || a.kv_heads == 0) return;
  check.at_least("max_quantized", a.max_quantized, 0);
  check.at_least("max_pages", a.max_pages,
                 spec::pages_for_tokens(spec::format_of(a.format), a.max_quantized));
  if (has_tiers(a)) {
    if (a.format != spec::format_id::k8v4) {
      throw spec::contract_error(
          fmt::format("decode: num_low is given with format {}; two tiers are k8v4 (the high one) "
                      "and k4v2, so pass k8v4, or a null num_low for a cache of one format",
                      spec::format_of(a.format).name));
    }
    check.at_least("max_low", a.max_low, 0);
    check.at_least("max_pages", a.max_pages,
                   spec::pages_for_tokens(spec::format_of(spec::format_id::k4v2), a.max_low));
    check.pointer("num_low", a.num_low, 4);
  }
  check.at_least("recent_capacity", a.recent_capacity, 0);
  check.multiple("recent_capacity", a.recent_capacity, 8);
  if (!(a.softmax_scale > 0) || !std::isfinite(a.softmax_scale)) {
    throw spec::contract_error("decode: softmax_scale must be positive and finite");
  }
  check.pointer("q", a.q, 16);
  check.pointer("page_table", a.page_table, 4);
  check.pointer("pages", a.pages, spec::page_alignment_bytes);
  check.pointer("num_quantized", a.num_quantized, 4);
  check.pointer("num_recent", a.num_recent, 4);
  if (a.recent_capacity > 0) {
    check.pointer("recent_k", a.recent_k, 16);
    check.pointer("recent_v", a.recent_v, 16);
  }
  check.pointer("out", a.out, 16);
  check.pointer("state", a.state, 8);
  if (a.scores != device_ptr{}) {
    check.pointer("scores", a.scores, 16);
    check.at_least("score_capacity", a.score_capacity,
                   std::int64_t{a.max_quantized} + (has_tiers(a) ? a.max_low : 0));
  }
  check.pointer("workspace", a.workspace, workspace_alignment);
}

}  // namespace

std::int64_t decode_ticket_bytes(const decode_args& a) {
  const std::int64_t bytes = std::int64_t{a.batch} * a.kv_heads * 4;
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

std::int64_t decode_workspace_bytes(const decode_args& a) {
  const std::int64_t partial = decode_partial_floats(a.gqa_ratio, a.head_dim) * 4;
  return decode_ticket_bytes(a) + std::int64_t{a.batch} * a.kv_heads * most_splits(a) * partial;
}

void decode(device& dev, const decode_args& a, stream* s) {
  validate(a);
  if (a.batch == 0 || a.kv_heads == 0) return;
  const std::int64_t splits = most_splits(a);
  const std::int64_t heads = std::int64_t{a.batch} * a.kv_heads;
  const std::int64_t items = heads * std::max<std::int64_t>(splits, 1);
  if (items > std::numeric_limits<std::int32_t>::max()) {
    throw spec::contract_error(
        "decode: batch * kv_heads * splits of max_quantized exceeds 2^31 - 1: launch in parts");
  }
  const int shared =
      decode_shape_of(spec::format_of(a.format), a.head_dim, a.gqa_ratio, has_tiers(a))
          .dynamic_shared_bytes;

  const kernel_entry& entry =
      find_kernel(has_tiers(a) ? kernel_role::decode_tiers : kernel_role::decode, a.format,
                  a.head_dim, a.gqa_ratio);
  const std::shared_ptr<kernel> k = dev.load(kernel_modules()[entry.module], entry.entry);
  decode_params p{};
  p.q = pointer_to<const std::uint16_t>(a.q);
  p.page_table = pointer_to<const std::int32_t>(a.page_table);
  p.pages = pointer_to<const unsigned char>(a.pages);
  p.num_quantized = pointer_to<const std::int32_t>(a.num_quantized);
  p.num_low = pointer_to<const std::int32_t>(a.num_low);
  p.num_recent = pointer_to<const std::int32_t>(a.num_recent);
  p.recent_k = pointer_to<const std::uint16_t>(a.recent_k);
  p.recent_v = pointer_to<const std::uint16_t>(a.recent_v);
  p.out = pointer_to<float>(a.out);
  p.state = pointer_to<float>(a.state);
  p.scores = pointer_to<float>(a.scores);
  p.tickets = pointer_to<unsigned>(a.workspace);
  p.partials = pointer_to<float>(a.workspace + decode_ticket_bytes(a));
  p.score_capacity = a.score_capacity;
  p.work_items = static_cast<std::int32_t>(items);
  p.c = static_cast<float>(double{a.softmax_scale} * std::numbers::log2e);
  p.max_quantized = a.max_quantized;
  p.max_pages = a.max_pages;
  p.max_splits = static_cast<std::int32_t>(std::max<std::int64_t>(splits, 1));
  p.recent_capacity = a.recent_capacity;
  p.balance = a.equal_lengths ? 0 : 1;

  // As many CTAs as fit at once. Equal lengths: each with the same number of splits, of whole heads
  // where there are many. One a split where there are fewer.
  const std::int64_t resident =
      std::int64_t{std::max(1, k->max_ctas_per_multiprocessor(decode_threads, shared))} *
      dev.info().num_multiprocessors;
  const std::int64_t items_each = a.equal_lengths ? (items + resident - 1) / resident : 1;
  const std::int64_t grid = std::min((items + items_each - 1) / items_each, resident);
  const launch_shape shape{{static_cast<std::uint32_t>(grid), 1, 1},
                           {decode_threads, 1, 1},
                           {1, 1, 1},
                           static_cast<std::uint32_t>(shared),
                           true};
  dev.launch(*k, shape, std::as_bytes(std::span(&p, 1)), s);
}

}  // namespace kvproof::gpu
