// The caches of several heads as the device sees them: one pool of pages, heads interleaved, the
// last page of a head first; and as the reference sees them, a page_pool each.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/formats/page_pool.hpp"

namespace kvproof::tests {

struct paged_heads {
  std::vector<page_pool> pools;     // a head each
  std::vector<std::int32_t> table;  // page ids [head][page]
  std::int64_t max_pages;           // of a head
  std::size_t page_bytes;

  paged_heads(const spec::kv_format& format, int head_dim, int num_heads, std::int64_t pages)
      : max_pages(pages),
        page_bytes(static_cast<std::size_t>(spec::page_size_bytes(format, head_dim))) {
    for (int h = 0; h < num_heads; ++h) {
      pools.emplace_back(format, head_dim, pages);
      for (std::int64_t page = 0; page < pages; ++page)
        table.push_back(static_cast<std::int32_t>((pages - 1 - page) * num_heads + h));
    }
  }
  [[nodiscard]] page_pool& head(int h) { return pools[static_cast<std::size_t>(h)]; }

  [[nodiscard]] std::vector<std::byte> in_device_order() const {
    std::vector<std::byte> bytes(page_bytes * table.size());
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::vector<std::byte>& page = page_of(i);
      std::copy(page.begin(), page.end(),
                bytes.begin() +
                    static_cast<std::ptrdiff_t>(static_cast<std::size_t>(table[i]) * page_bytes));
    }
    return bytes;
  }

  // How the device's pool differs from the reference's pages; empty if it does not.
  [[nodiscard]] std::string difference(const std::vector<std::byte>& actual) const {
    std::size_t different = 0;
    std::string first;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::vector<std::byte>& page = page_of(i);
      for (std::size_t b = 0; b < page_bytes; ++b) {
        const std::byte found = actual[static_cast<std::size_t>(table[i]) * page_bytes + b];
        if (found == page[b] || different++ > 0) continue;
        first = fmt::format("head {} page {} byte {}: {:02x}, not {:02x}",
                            i / static_cast<std::size_t>(max_pages),
                            i % static_cast<std::size_t>(max_pages), b, static_cast<int>(found),
                            static_cast<int>(page[b]));
      }
    }
    return different == 0 ? "" : fmt::format("{} bytes differ; first: {}", different, first);
  }

 private:
  [[nodiscard]] const std::vector<std::byte>& page_of(std::size_t entry) const {
    return pools[entry / static_cast<std::size_t>(max_pages)]
        .bytes[entry % static_cast<std::size_t>(max_pages)];
  }
};

}  // namespace kvproof::tests
