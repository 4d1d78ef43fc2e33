// The regimes as formulas, see synthetic_values.hpp.
#include "verify/synthetic_values.hpp"

#include <array>
#include <cmath>

#include "reference/numerics/half.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr std::array<std::string_view, 8> regime_names = {
    "normal", "sharp", "drift", "tiny", "huge", "constant", "exact_halves", "zero_signs"};

double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// About N(0, 1): twelve uniform numbers less six, from one hash by re-mixing.
double normal(std::uint64_t bits) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    bits = mix_bits(bits + 0x9e3779b97f4a7c15ULL);
    sum += uniform(bits);
  }
  return sum;
}

// token, head and channel as far as a regime looks at them.
double value_of(value_regime regime, tensor t, std::uint64_t bits, std::int64_t token,
                std::int64_t channel) {
  const bool query = t == tensor::q;
  switch (regime) {
    case value_regime::normal:
      return normal(bits);
    case value_regime::sharp:
      return query ? 8 * normal(bits) : normal(bits);
    case value_regime::drift:
      return query ? 1 + 0.1 * normal(bits)
                   : (t == tensor::k ? 0.002 * static_cast<double>(token) : 0) + normal(bits);
    case value_regime::tiny:
      return query ? normal(bits) : std::ldexp(normal(bits), -20);
    case value_regime::huge:
      if (query) return 0.25 * normal(bits);
      return bits % 7 == 0 ? ((bits & 0x80) != 0 ? 65504.0 : -65504.0)
                           : 20000 * (uniform(bits) - 0.5);
    case value_regime::constant:
      // Constant over tokens of a tile (K groups), over channels of a token (per-token and V
      // groups).
      if (query) return normal(bits);
      if (t == tensor::k)
        return (channel % 5 == 0) ? -0.0 : 0.01 * static_cast<double>(token / 16 % 7) - 0.02;
      return token % 5 == 0 ? -0.0 : 0.37 * static_cast<double>(token % 11) - 2;
    case value_regime::exact_halves:
      // Range 15 in most groups: the step is 1 with 4 bits and 5 with 2 bits, half steps are
      // frequent.
      if (query) return normal(bits);
      return bits % 8 == 0 ? 0 : bits % 8 == 1 ? 15 : 0.5 * static_cast<double>(bits / 8 % 31);
    case value_regime::zero_signs:
      if (query) return bits % 3 == 0 ? -0.0 : normal(bits);
      return bits % 4 == 0 ? -0.0 : bits % 4 == 1 ? 0.0 : bits % 64 == 2 ? 0.001 : 0.0;
  }
  return 0;
}

}  // namespace

std::span<const std::string_view> value_regime_names() { return regime_names; }

std::vector<half_bits> draw(std::uint64_t seed, std::string_view name, tensor t,
                            value_regime regime, std::int64_t batch, std::int64_t tokens,
                            std::int64_t heads, std::int64_t head_dim) {
  std::vector<half_bits> x(static_cast<std::size_t>(batch * tokens * heads * head_dim));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t channel = index % head_dim, token = index / (head_dim * heads) % tokens;
    const double value = value_of(regime, t, hash_index(seed, name, i), token, channel);
    x[i] = reference::float_to_half(static_cast<float>(value));
  }
  return x;
}

}  // namespace kvproof::verify
