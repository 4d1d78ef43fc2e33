// Results of decode attention compared as bits.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/decode_attention.hpp"

namespace kvproof::tests {

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

inline bool same_bits(const reference::decode_output& a, const reference::decode_output& b) {
  return bits_of(a.out) == bits_of(b.out) && bits_of(a.state) == bits_of(b.state) &&
         bits_of(a.scores) == bits_of(b.scores);
}

}  // namespace kvproof::tests
