// A differing page pool in words: the page and byte, whose page it is, and through the reference's
// unpacking the code, scale or zero that differs.
#pragma once

#include <cstddef>
#include <span>

#include "verify/cache_state.hpp"
#include "verify/compare.hpp"

namespace kvproof::verify {

// `actual` is the device's pool, as long as cache.pool and different from it.
[[nodiscard]] mismatch_report explain_pages(const cache_state& cache,
                                            std::span<const std::byte> actual);

}  // namespace kvproof::verify
