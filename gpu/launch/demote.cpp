// Launcher of the demotion kernels: one CTA a page that the written range can touch.
#include "gpu/launch/demote.hpp"

#include <span>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/page_units.hpp"
#include "gpu/launch/launch_checks.hpp"
#include "gpu/launch/page_grid.hpp"

namespace kvproof::gpu {

void demote(device& dev, const demote_args& a, stream* s) {
  const launch_checks check("demote");
  check.head_dim(a.head_dim);
  check.at_least("batch", a.batch, 0);
  check.at_least("kv_heads", a.kv_heads, 0);
  check.at_least("max_tokens", a.max_tokens, 0);
  if (a.batch == 0 || a.kv_heads == 0 || a.max_tokens == 0) return;
  check.at_least("max_from_pages", a.max_from_pages, 1);
  check.at_least("max_to_pages", a.max_to_pages, 1);
  check.pointer("tokens", a.tokens, 4);
  check.pointer("num_tokens", a.num_tokens, 4);
  check.pointer("from_table", a.from_table, 4);
  check.pointer("from_pages", a.from_pages, spec::page_alignment_bytes);
  check.pointer("first_token", a.first_token, 4);
  check.pointer("to_table", a.to_table, 4);
  check.pointer("to_pages", a.to_pages, spec::page_alignment_bytes);
  demote_params p{};
  p.from_table = pointer_to<const std::int32_t>(a.from_table);
  p.from_pages = pointer_to<const unsigned char>(a.from_pages);
  p.tokens = pointer_to<const std::int32_t>(a.tokens);
  p.first_token = pointer_to<const std::int32_t>(a.first_token);
  p.num_tokens = pointer_to<const std::int32_t>(a.num_tokens);
  p.to_table = pointer_to<const std::int32_t>(a.to_table);
  p.to_pages = pointer_to<unsigned char>(a.to_pages);
  p.max_tokens = a.max_tokens;
  p.max_from_pages = a.max_from_pages;
  p.max_to_pages = a.max_to_pages;
  p.replace = a.mode == demote_mode::replace ? 1 : 0;
  launch_page_grid(
      dev, check,
      {kernel_role::demote, spec::format_id::k8v4, spec::format_id::k4v2, a.head_dim,
       demote_threads(a.head_dim), a.batch, a.kv_heads, a.max_tokens, a.max_to_pages, "max_tokens"},
      std::as_bytes(std::span(&p, 1)), s);
}

}  // namespace kvproof::gpu
