// Launchers of the quantize kernels: one CTA a page that the appended range can touch, with all
// rows or with selected ones.
#include <span>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/page_units.hpp"
#include "gpu/launch/gather_quantize.hpp"
#include "gpu/launch/launch.hpp"
#include "gpu/launch/launch_checks.hpp"
#include "gpu/launch/page_grid.hpp"

namespace kvproof::gpu {
namespace {

// False: nothing to do.
bool validate(const launch_checks& check, const quantize_args& a) {
  check.head_dim(a.head_dim);
  check.at_least("batch", a.batch, 0);
  check.at_least("kv_heads", a.kv_heads, 0);
  check.at_least("max_new_tokens", a.max_new_tokens, 0);
  if (a.batch == 0 || a.kv_heads == 0 || a.max_new_tokens == 0) return false;
  check.at_least("max_pages", a.max_pages, 1);
  check.pointer("k", a.k, 16);
  check.pointer("v", a.v, 16);
  for (const std::int64_t stride : {a.stride_batch, a.stride_token, a.stride_head}) {
    check.at_least("a stride", stride, 0);
    check.multiple("a stride", stride, 8);
  }
  check.pointer("first_token", a.first_token, 4);
  check.pointer("num_new", a.num_new, 4);
  check.pointer("page_table", a.page_table, 4);
  check.pointer("pages", a.pages, spec::page_alignment_bytes);
  return true;
}

quantize_params params_of(const quantize_args& a) {
  quantize_params p{};
  p.k = pointer_to<const std::uint16_t>(a.k);
  p.v = pointer_to<const std::uint16_t>(a.v);
  p.stride_batch = a.stride_batch;
  p.stride_token = a.stride_token;
  p.stride_head = a.stride_head;
  p.first_token = pointer_to<const std::int32_t>(a.first_token);
  p.num_new = pointer_to<const std::int32_t>(a.num_new);
  p.page_table = pointer_to<const std::int32_t>(a.page_table);
  p.pages = pointer_to<unsigned char>(a.pages);
  p.max_pages = a.max_pages;
  return p;
}

void launch(device& dev, kernel_role role, const launch_checks& check, const quantize_args& a,
            const quantize_params& params, stream* s) {
  launch_page_grid(dev, check,
                   {role, a.format, a.format, a.head_dim, quantize_threads(a.format, a.head_dim),
                    a.batch, a.kv_heads, a.max_new_tokens, a.max_pages, "max_new_tokens"},
                   std::as_bytes(std::span(&params, 1)), s);
}

}  // namespace

void quantize(device& dev, const quantize_args& a, stream* s) {
  const launch_checks check("quantize");
  if (!validate(check, a)) return;
  launch(dev, kernel_role::quantize, check, a, params_of(a), s);
}

void gather_quantize(device& dev, const gather_quantize_args& a, stream* s) {
  const launch_checks check("gather_quantize");
  if (!validate(check, a.append)) return;
  check.pointer("selected", a.selected, 4);
  check.at_least("max_selected", a.max_selected, a.append.max_new_tokens);
  quantize_params params = params_of(a.append);
  params.selected = pointer_to<const std::int32_t>(a.selected);
  params.max_selected = a.max_selected;
  launch(dev, kernel_role::gather_quantize, check, a.append, params, s);
}

}  // namespace kvproof::gpu
