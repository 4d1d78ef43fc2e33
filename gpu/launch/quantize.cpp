// Launcher of the quantize kernels: one CTA a page that the appended range can touch.
#include <algorithm>
#include <memory>
#include <span>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/launch/launch.hpp"
#include "gpu/launch/launch_checks.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu {
namespace {

constexpr std::uint32_t threads = 128;  // quantize_threads of quantize_kernel.cuh
constexpr std::int64_t largest_grid_y = 65535;

template <typename T>
T* pointer_to(device_ptr p) {
  return reinterpret_cast<T*>(static_cast<std::uint64_t>(p));
}

}  // namespace

void quantize(device& dev, const quantize_args& a, stream* s) {
  const launch_checks check("quantize");
  check.head_dim(a.head_dim);
  check.at_least("batch", a.batch, 0);
  check.at_least("kv_heads", a.kv_heads, 0);
  check.at_least("max_new_tokens", a.max_new_tokens, 0);
  if (a.batch == 0 || a.kv_heads == 0 || a.max_new_tokens == 0) return;
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
  const std::int64_t heads = std::int64_t{a.batch} * a.kv_heads;
  if (heads > largest_grid_y)
    throw spec::contract_error("quantize: batch * kv_heads is above 65535; split the batch");

  const kernel_entry& entry = find_kernel(kernel_role::quantize, a.format, a.head_dim, 0);
  const std::shared_ptr<kernel> k = dev.load(kernel_modules()[entry.module], entry.entry);
  const quantize_params params{pointer_to<const std::uint16_t>(a.k),
                               pointer_to<const std::uint16_t>(a.v),
                               a.stride_batch,
                               a.stride_token,
                               a.stride_head,
                               pointer_to<const std::int32_t>(a.first_token),
                               pointer_to<const std::int32_t>(a.num_new),
                               pointer_to<const std::int32_t>(a.page_table),
                               pointer_to<unsigned char>(a.pages),
                               a.kv_heads,
                               a.max_pages};
  // A range that does not start at a page can touch one page more than its length fills.
  const std::int64_t pages =
      std::min<std::int64_t>(spec::pages_for_tokens(a.max_new_tokens) + 1, a.max_pages);
  const launch_shape shape{
      {static_cast<std::uint32_t>(pages), static_cast<std::uint32_t>(heads), 1},
      {threads, 1, 1},
      {1, 1, 1},
      0};
  dev.launch(*k, shape, std::as_bytes(std::span(&params, 1)), s);
}

}  // namespace kvproof::gpu
