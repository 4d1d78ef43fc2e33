// See page_grid.hpp.
#include "gpu/launch/page_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace kvproof::gpu {

void launch_page_grid(device& dev, const launch_checks& check, const page_grid& grid,
                      std::span<const std::byte> params, stream* s) {
  // A range that does not start at a page can touch one page more than its length fills.
  const std::int64_t pages = std::min<std::int64_t>(
      spec::pages_for_tokens(spec::format_of(grid.page_format), grid.max_tokens) + 1,
      grid.max_pages);
  check.at_most(fmt::format("pages of {}", grid.max_tokens_name), pages, largest_grid_yz);
  check.at_most("batch", grid.batch, largest_grid_yz);

  const kernel_entry& entry = find_kernel(grid.role, grid.format, grid.head_dim, 0);
  const std::shared_ptr<kernel> k = dev.load(kernel_modules()[entry.module], entry.entry);
  const launch_shape shape{
      {static_cast<std::uint32_t>(grid.kv_heads), static_cast<std::uint32_t>(pages),
       static_cast<std::uint32_t>(grid.batch)},
      {static_cast<std::uint32_t>(grid.threads), 1, 1},
      {1, 1, 1},
      0};
  dev.launch(*k, shape, params, s);
}

}  // namespace kvproof::gpu
