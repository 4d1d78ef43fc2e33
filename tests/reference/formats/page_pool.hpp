// Pages for tests, filled with a byte that a writer must overwrite or leave alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "reference/spec/kv_format.hpp"

namespace kvproof::tests {

class page_pool {
 public:
  page_pool(const spec::kv_format& format, int head_dim, std::int64_t num_pages,
            std::byte fill = std::byte{0xa5})
      : bytes(static_cast<std::size_t>(num_pages),
              std::vector<std::byte>(
                  static_cast<std::size_t>(spec::page_size_bytes(format, head_dim)), fill)),
        content_bytes(static_cast<std::size_t>(spec::page_content_bytes(format, head_dim))) {}

  [[nodiscard]] std::vector<std::span<std::byte>> writable() {
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] std::vector<std::span<const std::byte>> readable() const {
    return {bytes.begin(), bytes.end()};
  }

  // Only what lies behind the content of each page, or only the content, page after page.
  [[nodiscard]] std::vector<std::byte> unused() const {
    std::vector<std::byte> result;
    for (const auto& page : bytes) {
      result.insert(result.end(), page.begin() + std::ptrdiff_t(content_bytes), page.end());
    }
    return result;
  }
  [[nodiscard]] std::vector<std::byte> content() const {
    std::vector<std::byte> result;
    for (const auto& page : bytes) {
      result.insert(result.end(), page.begin(), page.begin() + std::ptrdiff_t(content_bytes));
    }
    return result;
  }
  void fill_unused(std::byte value) {
    for (auto& page : bytes) {
      std::fill(page.begin() + std::ptrdiff_t(content_bytes), page.end(), value);
    }
  }

  std::vector<std::vector<std::byte>> bytes;  // one vector a page
  std::size_t content_bytes;                  // of each page
};

}  // namespace kvproof::tests
