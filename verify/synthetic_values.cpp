// The regimes as formulas, see synthetic_values.hpp.
#include "verify/synthetic_values.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "reference/numerics/half.hpp"
#include "verify/hash.hpp"

namespace kvproof::verify {
namespace {

constexpr std::array<std::string_view, 11> regime_names = {
    "normal",       "sharp",      "drift", "tiny",  "huge",     "constant",
    "exact_halves", "zero_signs", "ties",  "least", "nonfinite"};

// A step with 1 to 8 significant bits: so many of its half multiples are fp16 numbers.
double step_of_group(std::uint64_t group_bits) {
  const int bits = 1 + static_cast<int>(group_bits % 8);
  const auto fraction = static_cast<double>(group_bits >> 16 & ((1U << (bits - 1)) - 1));
  return std::ldexp(1 + std::ldexp(fraction, 1 - bits), static_cast<int>(group_bits / 8 % 7) - 3);
}

// Where an element stands, as far as a regime looks at it.
struct element {
  std::uint64_t bits;        // of its own
  std::uint64_t group_bits;  // the same for all elements of a quantization group
  std::int64_t sequence, token, head, channel;
  int levels;  // highest code
};

double value_of(value_regime regime, tensor t, const element& e) {
  const bool query = t == tensor::q;
  const std::uint64_t bits = e.bits;
  const std::int64_t token = e.token, channel = e.channel;
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
    case value_regime::ties: {
      if (query) return normal(bits);
      const auto twice = static_cast<std::uint64_t>(2 * e.levels);
      const std::uint64_t halves = bits % 8 == 0   ? 0
                                   : bits % 8 == 1 ? twice
                                                   : bits / 8 % (twice + 1);
      const double step = step_of_group(e.group_bits);
      // In a quarter of the groups the range lies between two steps, half a unit from each.
      if (halves == 0 && (e.group_bits >> 40) % 4 == 0)
        return -e.levels * std::ldexp(1.0, std::ilogb(step) - 11);
      return 0.5 * static_cast<double>(halves) * step;
    }
    case value_regime::least: {
      if (query) return normal(bits);
      // 0 to 3 whole steps and a part of one.
      const auto levels = static_cast<std::uint64_t>(e.levels);
      const std::uint64_t range = e.group_bits % 4 * levels + e.group_bits / 4 % levels;
      const std::uint64_t units = bits % 8 == 0   ? 0
                                  : bits % 8 == 1 ? range
                                                  : bits / 8 % (range + 1);
      return std::ldexp(static_cast<double>(units) - static_cast<double>(e.group_bits >> 32 & 3),
                        -24);
    }
    case value_regime::nonfinite: {
      const std::int64_t part = (e.sequence + e.head) % 3;  // both, values only, neither
      const bool touched = t == tensor::k ? part == 0 : part != 2;
      // Two tokens of every other tile: else a tile of group16 keys would never be finite.
      if (query || !touched || (token % 32 != 5 && token % 32 != 13) || bits % 50 != 0)
        return normal(bits);
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const std::uint64_t kind = bits / 50 % 3;
      return kind == 0   ? infinity
             : kind == 1 ? -infinity
                         : std::numeric_limits<double>::quiet_NaN();
    }
  }
  return 0;
}

}  // namespace

std::span<const std::string_view> value_regime_names() { return regime_names; }

std::vector<half_bits> draw(std::uint64_t seed, std::string_view name, tensor t,
                            value_regime regime, const spec::kv_format& format,
                            const drawn_shape& shape) {
  const auto [batch, tokens, heads, head_dim] = shape;
  std::vector<half_bits> x(static_cast<std::size_t>(batch * tokens * heads * head_dim));
  // A group is a tile of 16 tokens for all formats, and 16 channels where groups are that narrow:
  // whatever is constant in it is constant in each real group.
  const bool narrow = format.scales == spec::scale_layout::group16;
  const std::int64_t tiles = tokens / spec::tokens_per_tile + 1;
  const std::int64_t groups = narrow ? head_dim / spec::group_size : 1;
  const std::string group_name = std::string(name) + " group";
  element e{};
  e.levels = (1 << (t == tensor::k ? format.key_bits : format.value_bits)) - 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    e.channel = index % head_dim;
    e.head = index / head_dim % heads;
    e.token = index / (head_dim * heads) % tokens;
    e.sequence = index / (head_dim * heads * tokens);
    e.bits = hash_index(seed, name, i);
    const std::int64_t group =
        ((e.sequence * tiles + e.token / spec::tokens_per_tile) * heads + e.head) * groups +
        (narrow ? e.channel / spec::group_size : 0);
    e.group_bits = hash_index(seed, group_name, static_cast<std::uint64_t>(group));
    x[i] = reference::float_to_half(static_cast<float>(value_of(regime, t, e)));
  }
  return x;
}

}  // namespace kvproof::verify
