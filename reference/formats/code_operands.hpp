// Codes as fp16 operands of the tensor core: kv_formats.md section 5 in code. The fp16 pattern
// code << p is the number code * 2^-e with e = 24 - p. Keys of 8 and 4 bits are integer operands
// and have neither p nor e: asked for them, both functions throw contract_error.
#pragma once

#include "reference/formats/page_layout.hpp"
#include "reference/spec/kv_format.hpp"

namespace kvproof::reference {

// p for the codes of channel group `group` (16 channels).
[[nodiscard]] int operand_shift(const spec::kv_format& format, int head_dim, kv_side side,
                                int group);

// e: K^ = code * 2^-eK(group), V^ = code * 2^-eV(group).
[[nodiscard]] int operand_exponent(const spec::kv_format& format, int head_dim, kv_side side,
                                   int group);

// E of 2-bit keys.
inline constexpr int key_exponent = 20;

}  // namespace kvproof::reference
