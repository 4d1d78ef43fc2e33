// IEEE binary16 and bfloat16 to and from binary32, by integer code: the same bits on every machine
// and under every floating-point mode. Rounding is to nearest even, subnormals are kept, NaN
// becomes 0x7fff.
#pragma once

#include <cstdint>

namespace kvproof::reference {

[[nodiscard]] float half_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_half(float x);

[[nodiscard]] float bfloat16_to_float(std::uint16_t bits);
[[nodiscard]] std::uint16_t float_to_bfloat16(float x);

}  // namespace kvproof::reference
