// The floating-point environment that the reference needs, see arithmetic.hpp.
#include "reference/numerics/arithmetic.hpp"

#include <xmmintrin.h>

namespace kvproof::reference {

bool fp_environment_is_clean() {
  constexpr unsigned flush_round_denormals = 0x8000u | 0x6000u | 0x0040u;  // FTZ, RC, DAZ of MXCSR
  return (_mm_getcsr() & flush_round_denormals) == 0;
}

}  // namespace kvproof::reference
