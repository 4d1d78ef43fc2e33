// See paged_cache.hpp.
#include "verify/paged_cache.hpp"

#include <numeric>
#include <utility>

#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr auto unwritten_page_byte = std::byte{0xa5};
constexpr int spare_pages = 3;  // of the pool, owned by nobody: must not change

}  // namespace

paged_cache::paged_cache(spec::format_id cache_format, int cache_head_dim, std::int64_t heads,
                         int max_pages_of_head, std::uint64_t seed, std::string_view name)
    : format(cache_format),
      head_dim(cache_head_dim),
      max_pages(max_pages_of_head),
      page_bytes(spec::page_size_bytes(spec::format_of(format), head_dim)),
      num_tokens(static_cast<std::size_t>(heads), 0) {
  if (max_pages == 0) return;
  const std::int64_t owned = heads * max_pages;
  pool.assign(static_cast<std::size_t>((owned + spare_pages) * page_bytes), unwritten_page_byte);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(owned + spare_pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); i > 1; --i) {  // Fisher-Yates from the seed
    std::swap(ids[i - 1], ids[hash_index(seed, name, i) % i]);
  }
  table.assign(ids.begin(), ids.begin() + owned);
}

std::span<std::byte> paged_cache::page(std::int64_t head, std::int64_t index) {
  const std::int64_t id = table[static_cast<std::size_t>(head * max_pages + index)];
  return std::span(pool).subspan(static_cast<std::size_t>(id * page_bytes),
                                 static_cast<std::size_t>(page_bytes));
}

std::span<const std::byte> paged_cache::page(std::int64_t head, std::int64_t index) const {
  const std::int64_t id = table[static_cast<std::size_t>(head * max_pages + index)];
  return std::span(pool).subspan(static_cast<std::size_t>(id * page_bytes),
                                 static_cast<std::size_t>(page_bytes));
}

std::vector<std::span<std::byte>> paged_cache::pages_of(std::int64_t head) {
  std::vector<std::span<std::byte>> pages;
  for (int i = 0; i < max_pages; ++i) pages.push_back(page(head, i));
  return pages;
}

}  // namespace kvproof::verify
