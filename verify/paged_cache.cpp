// See paged_cache.hpp.
#include "verify/paged_cache.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr auto unwritten_page_byte = std::byte{0xa5};
constexpr int spare_pages = 3;  // of the pool, owned by nobody: must not change

// The ids of a pool in an order drawn from (seed, name).
std::vector<std::int32_t> drawn_ids(std::int64_t count, std::uint64_t seed, std::string_view name) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); i > 1; --i) {  // Fisher-Yates from the seed
    std::swap(ids[i - 1], ids[hash_index(seed, name, i) % i]);
  }
  return ids;
}

std::shared_ptr<std::vector<std::byte>> unwritten_pool(std::int64_t num_pages,
                                                       std::int64_t page_bytes) {
  return std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(num_pages * page_bytes),
                                                  unwritten_page_byte);
}

}  // namespace

paged_cache::paged_cache(spec::format_id cache_format, int cache_head_dim, std::int64_t heads,
                         int max_pages_of_head, std::uint64_t seed, std::string_view name)
    : format(cache_format),
      head_dim(cache_head_dim),
      max_pages(max_pages_of_head),
      page_bytes(spec::page_size_bytes(spec::format_of(format), head_dim)),
      num_pages(static_cast<std::size_t>(heads), max_pages_of_head),
      num_tokens(static_cast<std::size_t>(heads), 0) {
  const std::int64_t owned = heads * max_pages;
  pool = unwritten_pool(max_pages == 0 ? 0 : owned + spare_pages, page_bytes);
  const std::vector<std::int32_t> ids = drawn_ids(owned + spare_pages, seed, name);
  table.assign(ids.begin(), ids.begin() + owned);
}

std::span<std::byte> paged_cache::page(std::int64_t head, std::int64_t index) {
  const std::int64_t id = table[static_cast<std::size_t>(head * max_pages + index)];
  return std::span(*pool).subspan(static_cast<std::size_t>(id * page_bytes),
                                  static_cast<std::size_t>(page_bytes));
}

std::span<const std::byte> paged_cache::page(std::int64_t head, std::int64_t index) const {
  const std::int64_t id = table[static_cast<std::size_t>(head * max_pages + index)];
  return std::span(std::as_const(*pool))
      .subspan(static_cast<std::size_t>(id * page_bytes), static_cast<std::size_t>(page_bytes));
}

std::vector<std::span<std::byte>> paged_cache::pages_of(std::int64_t head) {
  std::vector<std::span<std::byte>> pages;
  for (int i = 0; i < num_pages[static_cast<std::size_t>(head)]; ++i)
    pages.push_back(page(head, i));
  return pages;
}

std::int64_t paged_cache::most_tokens() const {
  const int most = num_pages.empty() ? 0 : *std::ranges::max_element(num_pages);
  return std::int64_t{most} * spec::format_of(format).tokens_per_page;
}

tiered_caches make_tiers(int head_dim, const std::vector<int>& high_pages,
                         const std::vector<int>& low_pages, std::uint64_t seed) {
  const auto heads = std::ssize(high_pages);
  tiered_caches t{{spec::format_id::k8v4, head_dim, heads, 0, seed, ""},
                  {spec::format_id::k4v2, head_dim, heads, 0, seed, ""}};
  t.high.max_pages = 1;
  for (std::size_t h = 0; h < high_pages.size(); ++h) {
    t.high.max_pages = std::max(t.high.max_pages, high_pages[h] + low_pages[h]);
    t.low.max_pages = std::max(t.low.max_pages, low_pages[h]);
  }
  t.high.num_pages = high_pages;
  t.low.num_pages = low_pages;
  const std::int64_t owned =
      std::accumulate(high_pages.begin(), high_pages.end(), std::int64_t{0}) +
      std::accumulate(low_pages.begin(), low_pages.end(), std::int64_t{0});
  t.high.pool = t.low.pool = unwritten_pool(owned + spare_pages, t.high.page_bytes);
  t.high.table.assign(static_cast<std::size_t>(heads * t.high.max_pages), -1);
  t.low.table.assign(static_cast<std::size_t>(heads * t.low.max_pages), -1);
  const std::vector<std::int32_t> ids = drawn_ids(owned + spare_pages, seed, "page_ids");
  auto next = ids.begin();
  for (std::size_t h = 0; h < high_pages.size(); ++h) {
    const auto row = t.high.table.begin() + std::ssize(t.high.table) / heads * std::ptrdiff_t(h);
    const auto low_row = t.low.table.begin() + std::ssize(t.low.table) / heads * std::ptrdiff_t(h);
    for (int i = 0; i < high_pages[h]; ++i) row[i] = *next++;
    for (int i = 0; i < low_pages[h]; ++i) row[t.high.max_pages - 1 - i] = low_row[i] = *next++;
  }
  return t;
}

}  // namespace kvproof::verify
