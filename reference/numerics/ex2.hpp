// ex2.approx.ftz.f32, the GPU's base-2 exponential, as integers. Equal to an H200 on all 2^32
// inputs.
#pragma once

namespace kvproof::reference {

// 2^x as the hardware gives it: +0 below 2^-126, 0x7fffffff for NaN, subnormal x counts as 0.
[[nodiscard]] float ex2_approx(float x);

}  // namespace kvproof::reference
