// Cases of synthetic values, which need no file.
#pragma once

#include <vector>

#include "verify/test_case.hpp"

namespace kvproof::verify {

// Every format, head_dim 64 and 128:
//   quantize/FORMAT/dD_REGIME_piecesN  144 tokens appended N at a time, in every value regime
//   decode/FORMAT/dD_gG_...            GQA ratios 1 to 8 at ragged boundary lengths, every regime,
//                                      many splits over few CTAs and over many
[[nodiscard]] std::vector<test_case> short_cases();

//   stream/FORMAT/dD_gG_flushN         tokens arrive one by one in the fp16 recent part, which is
//                                      quantized whole when it holds N of them: several flushes a
//                                      head, into begun pages and into pages touched first, at
//                                      different steps in different heads; attention at every step
[[nodiscard]] std::vector<test_case> stream_cases();

//   long/FORMAT/dD_gG                  many splits, up to and beyond the change of split length
//   long/FORMAT/d64_g1_splits34        33 splits and a recent part
[[nodiscard]] std::vector<test_case> long_cases();

}  // namespace kvproof::verify
