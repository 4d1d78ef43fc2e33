// A differing page pool in words: the page and byte, whose page it is, and through the reference's
// unpacking the code, scale or zero that differs.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "verify/compare.hpp"
#include "verify/paged_cache.hpp"

namespace kvproof::verify {

// `actual` is the device's pool of that name, as long as expected.pool and different from it. With
// tiers, `expected` is the one that has the first differing page, if any has.
[[nodiscard]] mismatch_report explain_pages(std::string_view name, const paged_cache& expected,
                                            int kv_heads, std::span<const std::byte> actual);

}  // namespace kvproof::verify
