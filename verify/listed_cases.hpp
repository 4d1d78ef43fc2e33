// Cases of the kernels that follow a list: gather_quantize of source rows, demote of tokens.
#pragma once

#include <vector>

#include "verify/test_case.hpp"

namespace kvproof::verify {

// head_dim 64 and 128:
//   gather_quantize/FORMAT/dD_ORDER  strided, reversed, repeated or random rows, to the beginning
//   of
//                                    a page and behind tokens in it, none for some heads
//   demote/k8v4/dD_ORDER             ascending, repeated or random tokens of quantized caches:
//                                    appended to new and to begun pages, then put in the places of
//                                    others, then appended again
[[nodiscard]] std::vector<test_case> listed_cases();

//   .../dD_random_REGIME             other values: nonfinite rows to gather, all regimes to demote
[[nodiscard]] std::vector<test_case> listed_regime_cases();

}  // namespace kvproof::verify
