// Counter-based random bits: a pure function of (seed, tensor name, element index), the same on
// every platform, for any thread count and order.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvproof::verify {

// The finalizer of MurmurHash3 (public domain), a bijection of 64-bit integers with good avalanche.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

[[nodiscard]] constexpr std::uint64_t hash_index(std::uint64_t seed, std::string_view name,
                                                 std::uint64_t index) {
  std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a of the name
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix_bits(mix_bits(seed ^ h) + index * 0x9e3779b97f4a7c15ULL);
}

// In [0, 1).
[[nodiscard]] constexpr double uniform(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// About N(0, 1): twelve uniform numbers less six, from one hash by re-mixing.
[[nodiscard]] constexpr double normal(std::uint64_t bits) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    bits = mix_bits(bits + 0x9e3779b97f4a7c15ULL);
    sum += uniform(bits);
  }
  return sum;
}

}  // namespace kvproof::verify
