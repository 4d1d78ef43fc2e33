// Launcher of the score update: one CTA for 512 tokens of a head.
#include "gpu/launch/score_update.hpp"

#include <memory>
#include <span>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/score_update_shape.hpp"
#include "gpu/launch/page_grid.hpp"

namespace kvproof::gpu {

bool check_score_update(const launch_checks& check, const score_update_args& a) {
  check.ratio(a.gqa_ratio);
  check.at_least("batch", a.batch, 0);
  check.at_least("kv_heads", a.kv_heads, 0);
  check.at_least("max_tokens", a.max_tokens, 0);
  if (a.batch == 0 || a.kv_heads == 0 || a.max_tokens == 0) return false;
  check.at_most("batch", a.batch, largest_grid_yz);
  check.at_most("kv_heads", a.kv_heads, largest_grid_yz);
  check.at_most("max_tokens", a.max_tokens, 2147483647);  // num_tokens is 32 bits wide
  check.at_least("score_capacity", a.score_capacity, a.max_tokens);
  check.multiple("score_capacity", a.score_capacity, 4);
  check.at_least("running_capacity", a.running_capacity, a.max_tokens);
  check.multiple("running_capacity", a.running_capacity, 4);
  check.pointer("scores", a.scores, 16);
  check.pointer("state", a.state, 8);
  check.pointer("num_tokens", a.num_tokens, 4);
  check.pointer("running", a.running, 16);
  return true;
}

void score_update(device& dev, const score_update_args& a, stream* s) {
  if (!check_score_update(launch_checks("score_update"), a)) return;
  score_update_params p{};
  p.scores = pointer_to<const float>(a.scores);
  p.state = pointer_to<const float>(a.state);
  p.num_tokens = pointer_to<const std::int32_t>(a.num_tokens);
  p.running = pointer_to<float>(a.running);
  p.score_capacity = a.score_capacity;
  p.running_capacity = a.running_capacity;

  const kernel_entry& entry =
      find_kernel(kernel_role::score_update, spec::format_id::k8v4, 0, a.gqa_ratio);
  const std::shared_ptr<kernel> k = dev.load(kernel_modules()[entry.module], entry.entry);
  const std::int64_t ctas = (a.max_tokens + score_update_cta_tokens - 1) / score_update_cta_tokens;
  const launch_shape shape{
      {static_cast<std::uint32_t>(ctas), static_cast<std::uint32_t>(a.kv_heads),
       static_cast<std::uint32_t>(a.batch)},
      {score_update_threads, 1, 1},
      {1, 1, 1},
      0,
      true};
  dev.launch(*k, shape, std::as_bytes(std::span(&p, 1)), s);
}

}  // namespace kvproof::gpu
