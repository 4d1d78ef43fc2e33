// Synthetic keys, values and queries: a pure function of (seed, tensor, element index), drawn in
// regimes that are hard for quantizers and for attention.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "verify/workload.hpp"

namespace kvproof::verify {

// How synthetic values are drawn.
enum class value_regime : std::uint8_t {
  normal,        // sums of uniforms, about N(0, 1)
  sharp,         // queries 8 times larger: few tokens take all the mass
  drift,         // keys grow along the sequence: the running maximum moves in every block
  tiny,          // around 2^-20: scales are fp16 subnormals or zero
  huge,          // keys and values up to +-65504, small queries
  constant,      // every quantization group is constant, some of them -0
  exact_halves,  // multiples of half a code step: every code is a tie
  zero_signs,    // only +0, -0 and a few small numbers
  ties,          // each group has a step of its own; elements are multiples of half of it
  least,         // few units of 2^-24: steps are rounded by up to a half, quotients exceed 2^b - 1
  nonfinite,     // NaN and infinities in some keys and values; no head has them everywhere
};
[[nodiscard]] std::span<const std::string_view> value_regime_names();

enum class tensor : std::uint8_t { k, v, q };

struct drawn_shape {
  std::int64_t batch, tokens, heads, head_dim;
};

// fp16 [batch][tokens][heads][head_dim]. `name` tells tensors of one seed apart; `format` says
// which elements form a group and how many bits a code has.
[[nodiscard]] std::vector<half_bits> draw(std::uint64_t seed, std::string_view name, tensor t,
                                          value_regime regime, const spec::kv_format& format,
                                          const drawn_shape& shape);

}  // namespace kvproof::verify
