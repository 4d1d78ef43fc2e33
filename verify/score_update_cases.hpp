// Cases of the score update, GQA ratios G = 1 to 8: synthetic logits of many heads at ragged
// lengths, two steps on one running significance, each head a token longer in the second.
#pragma once

#include <vector>

#include "verify/test_case.hpp"

namespace kvproof::verify {

//   score_update/gG_mixed    lengths from 0 to 2563, a head of every kind of logits below
[[nodiscard]] std::vector<test_case> score_update_cases();

//   score_update/gG_KIND     lengths from 0 to 6145, all heads of one kind of logits:
//     ordinary                 each query head with a maximum and a sum of its own
//     infinities               logits of -inf; tokens without any other
//     nans                     logits that are NaN; tokens without any other
//     nan_state                l is NaN, of one query head or of all
//     small_sums               m far above every logit: l about 2^-120; l subnormal, 1 / l large
//     large_sums               m far below every logit: l above 2^126, 1 / l subnormal
//     zero_signs               logits, m and significance of +0 and -0
//   score_update/gG_full     buffers end with the longest head's last token
[[nodiscard]] std::vector<test_case> score_update_kind_cases();

}  // namespace kvproof::verify
