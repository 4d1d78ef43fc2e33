// What launchers share beside their checks: addresses as parameters, the limit of a grid, and the
// launch of kernels that write pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "gpu/device/device.hpp"
#include "gpu/kernels/kernel_table.hpp"
#include "gpu/launch/launch_checks.hpp"

namespace kvproof::gpu {

// A field of a parameter struct.
template <typename T>
T* pointer_to(device_ptr p) {
  return reinterpret_cast<T*>(static_cast<std::uint64_t>(p));
}

inline constexpr std::int64_t largest_grid_yz = 65535;  // CUDA's limit of a grid's y and z

// A kernel, and ranges of up to max_tokens tokens of every (sequence, KV head) in page tables of
// max_pages.
struct page_grid {
  kernel_role role;
  spec::format_id format;       // of the kernel
  spec::format_id page_format;  // of the pages that are written
  int head_dim, threads;
  int batch, kv_heads, max_tokens, max_pages;
  std::string_view max_tokens_name;  // for messages
};

// Launches one CTA a page that a range can touch: grid x = KV head, y = page, z = sequence. Throws
// contract_error where the grid is too large.
void launch_page_grid(device& dev, const launch_checks& check, const page_grid& grid,
                      std::span<const std::byte> params, stream* s);

}  // namespace kvproof::gpu
