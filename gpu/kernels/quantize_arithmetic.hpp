// The quantizer of reference/spec/kv_formats.md section 2 without a division per element, from fma
// alone. Compiled for the device and, for the exhaustive test, for the host: Ops supplies fma, mul,
// add, sub (each rounded once to nearest even, fp32) and the bits of a float.
//
//   step  = RN32(range / R):  q = RN(range * RN(1/R)), then one fma correction of the remainder.
//   code  = rne(RN32(d / s)): d * (high + low), where high + low is 1/s to 2^-44, rounded twice:
//           to fp32 and, by adding 1.5 * 2^23, to an integer.
//
// Why the code is exact. For a half integer h <= 254.5 and a scale s (a half) the product h*s has
// at most 20 bits, so it is an fp32 number. If d = h*s, the quotient is h up to 2^-44 and rounds to
// h exactly: a tie stays a tie. If d is another fp32 number, it differs from h*s by at least one
// unit in the last place, hence d/s differs from h by more than half a unit in the last place of h,
// and both RN32(d/s) and the value here lie on the same side of h. Both are monotone in d; so
// checking d = h*s and its two neighbours for every s and h checks every d.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define KVPROOF_DEVICE __device__ __forceinline__
#else
#define KVPROOF_DEVICE inline
#endif

namespace kvproof::gpu {

// x + rounding_shift is rounding_shift + rne(x) for 0 <= x < 2^22; the integer is in the low bits.
constexpr float rounding_shift = 12582912.0f;

struct reciprocal {
  float high, low;
};

// s: a positive finite half.
template <class Ops>
KVPROOF_DEVICE reciprocal reciprocal_of(float s) {
  float r = Ops::from_bits(0x7ef311c7u - Ops::bits(s));  // within 13 %
  for (int i = 0; i < 3; ++i) r = Ops::fma(r, Ops::fma(-s, r, 1.0f), r);
  return {r, Ops::mul(r, Ops::fma(-s, r, 1.0f))};
}

template <class Ops>
KVPROOF_DEVICE float quotient(float d, reciprocal by) {
  return Ops::fma(d, by.high, Ops::mul(d, by.low));
}

// RN32(range / Levels) for range = 0 or in [2^-24, 2^17].
template <int Levels, class Ops>
KVPROOF_DEVICE float step_of(float range) {
  constexpr float inverse = 1.0f / Levels;
  const float q = Ops::mul(range, inverse);
  return Ops::fma(Ops::fma(-q, static_cast<float>(Levels), range), inverse, q);
}

}  // namespace kvproof::gpu
