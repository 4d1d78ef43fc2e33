// Pages for tests, filled with a byte that a writer must overwrite or leave alone.
#pragma once

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
                  static_cast<std::size_t>(spec::page_size_bytes(format, head_dim)), fill)) {}

  [[nodiscard]] std::vector<std::span<std::byte>> writable() {
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] std::vector<std::span<const std::byte>> readable() const {
    return {bytes.begin(), bytes.end()};
  }

  std::vector<std::vector<std::byte>> bytes;  // one vector a page
};

}  // namespace kvproof::tests
