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

//   decode/tiers/dD_gG_...             high and low tier and recent part of such lengths in one
//   pool
//                                      and one page table; half of a low tier is demoted from
//                                      drawn tokens of the high one, half (all beside an empty high
//                                      tier) quantized
// A few of them, and the others: every GQA ratio, every regime, many splits.
[[nodiscard]] std::vector<test_case> tier_cases();
[[nodiscard]] std::vector<test_case> more_tier_cases();

//   stream/FORMAT/dD_gG_flushN         tokens arrive one by one in the fp16 recent part, which is
//                                      quantized whole when it holds N of them: several flushes a
//                                      head, into begun pages and into pages touched first, at
//                                      different steps in different heads; attention at every step
[[nodiscard]] std::vector<test_case> stream_cases();

//   long/FORMAT/dD_gG                  many splits, up to and beyond the change of split length
//   long/FORMAT/d64_g1_splits34        33 splits and a recent part
//   long/tiers/...                     the same of two tiers
[[nodiscard]] std::vector<test_case> long_cases();

}  // namespace kvproof::verify
