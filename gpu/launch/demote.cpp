// Launcher of the demotion kernels: one CTA a page that the written range can touch.
#include "gpu/launch/demote.hpp"

#include <algorithm>
#include <memory>
#include <span>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/launch/launch_checks.hpp"

namespace kvproof::gpu {
namespace {

// demote_threads of demote_kernel.cuh: a warp for 2048 elements of K and of V.
constexpr std::uint32_t threads_of(int head_dim) { return static_cast<std::uint32_t>(head_dim); }
constexpr std::int64_t largest_grid_yz = 65535;

template <typename T>
T* pointer_to(device_ptr p) {
  return reinterpret_cast<T*>(static_cast<std::uint64_t>(p));
}

}  // namespace

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
  // A range that does not start at a page can touch one page more than its length fills.
  const std::int64_t pages =
      std::min<std::int64_t>(spec::pages_for_tokens(a.max_tokens) + 1, a.max_to_pages);
  check.at_most("pages of max_tokens", pages, largest_grid_yz);
  check.at_most("batch", a.batch, largest_grid_yz);

  const kernel_entry& entry =
      find_kernel(kernel_role::demote, spec::format_id::k8v4, a.head_dim, 0);
  const std::shared_ptr<kernel> k = dev.load(kernel_modules()[entry.module], entry.entry);
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
  const launch_shape shape{{static_cast<std::uint32_t>(a.kv_heads),
                            static_cast<std::uint32_t>(pages), static_cast<std::uint32_t>(a.batch)},
                           {threads_of(a.head_dim), 1, 1},
                           {1, 1, 1},
                           0};
  dev.launch(*k, shape, std::as_bytes(std::span(&p, 1)), s);
}

}  // namespace kvproof::gpu
