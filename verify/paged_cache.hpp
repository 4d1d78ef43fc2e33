// The reference's pages of all (sequence, KV head) caches of one format, in one pool; or of the two
// tiers of such caches, which share a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "reference/spec/kv_format.hpp"

namespace kvproof::verify {

struct paged_cache {
  // Without a token. Page ids stand in an order drawn from (seed, name); the pool has some pages
  // more, which nobody owns. max_pages 0: no pool.
  paged_cache(spec::format_id cache_format, int cache_head_dim, std::int64_t heads,
              int max_pages_of_head, std::uint64_t seed, std::string_view name);

  [[nodiscard]] std::span<std::byte> page(std::int64_t head, std::int64_t index);
  [[nodiscard]] std::span<const std::byte> page(std::int64_t head, std::int64_t index) const;
  // All pages of a head, in token order.
  [[nodiscard]] std::vector<std::span<std::byte>> pages_of(std::int64_t head);
  [[nodiscard]] std::int64_t most_tokens() const;  // that a head has pages for

  spec::format_id format;
  int head_dim;
  int max_pages;
  std::int64_t page_bytes;
  std::shared_ptr<std::vector<std::byte>> pool;  // [num_pages][page_bytes]
  std::vector<std::int32_t> table;               // [head][max_pages], page ids, -1: none
  std::vector<int> num_pages;                    // [head], from the front of its row
  std::vector<std::int32_t> num_tokens;          // [head]
};

// Caches of k8v4 (high) and k4v2 (low) without a token, of high_pages and low_pages [head] in one
// pool. A row of high.table also holds the head's low pages, from its end backwards, and is as long
// as the head with most pages needs; low.table lists them forwards.
struct tiered_caches {
  paged_cache high, low;
};
[[nodiscard]] tiered_caches make_tiers(int head_dim, const std::vector<int>& high_pages,
                                       const std::vector<int>& low_pages, std::uint64_t seed);

}  // namespace kvproof::verify
