// Seeded test values: a pure function of (seed, index), the same on every platform.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"

namespace kvproof::tests {

using reference::half_bits;

class seeded_values {
 public:
  explicit seeded_values(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }
  half_bits normal_half(double deviation = 1) {
    return reference::float_to_half(static_cast<float>(deviation * normal()));
  }
  half_bits finite_half() {  // every finite pattern is equally likely
    for (;;) {
      const auto bits = static_cast<half_bits>(next());
      if ((bits & 0x7c00) != 0x7c00) return bits;
    }
  }
  std::vector<half_bits> normal_halves(std::int64_t count, double deviation = 1) {
    std::vector<half_bits> values(static_cast<std::size_t>(count));
    for (half_bits& x : values) x = normal_half(deviation);
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kvproof::tests
