// Inputs of the golden outputs, shared by the recorder (record/record_golden.cu) and the tests.
// Every number is a pure function of (seed, kind, distribution, tile, tensor, element), made with
// integers only, so that it is the same for every compiler. Outputs are never computed here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvproof::golden {

inline constexpr std::uint64_t recorded_seed = 20261201;

// ---- matrix products: d = a * b + c, steps of the instruction chained over `depth` --------------

struct matrix_kind {
  std::string_view name;  // stem of the golden file
  bool bf16;              // operands; otherwise fp16
  int rows;               // of one tile; a tile has 8 columns
  int depth;              // products per output, over all chained steps
  int step;               // products per instruction
};
inline constexpr int columns = 8;
inline constexpr std::array<matrix_kind, 5> matrix_kinds = {{
    {"mma_m16n8k16_f16", false, 16, 16, 16},
    {"mma_m16n8k16_bf16", true, 16, 16, 16},
    {"mma_m16n8k8_f16", false, 16, 8, 8},
    {"wgmma_m64n8k16_f16", false, 64, 64, 16},
    {"wgmma_m64n8k16_bf16", true, 64, 64, 16},
}};

enum class distribution : std::uint8_t {
  uniform,
  normal,
  wide_exponents,
  cancellation,
  tiny,
  large_accumulator,
  sparse_signed_zeros,
  specials,
  attention,
  near_overflow,
  zero_times_huge,
  all_products_zero,
  random_bits,
};
inline constexpr int num_distributions = 13;
inline constexpr int outputs_per_distribution = 2048;

[[nodiscard]] constexpr int num_tiles(const matrix_kind& kind) {
  return outputs_per_distribution / (kind.rows * columns);
}

struct matrix_tile {
  std::vector<std::uint16_t> a;  // [rows][depth]
  std::vector<std::uint16_t> b;  // [8][depth]: the depth of a column is contiguous
  std::vector<std::uint32_t> c;  // [rows][8], fp32 patterns
};

namespace detail {

constexpr std::uint64_t mix(std::uint64_t z) {  // the finaliser of splitmix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Random words of one element.
class draws {
 public:
  constexpr draws(std::uint64_t stream, std::uint64_t element)
      : state_(mix(stream ^ mix(element))) {}
  constexpr std::uint32_t word() {
    state_ = mix(state_);
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  constexpr std::uint32_t below(std::uint32_t bound) { return word() % bound; }
  constexpr bool one_in(std::uint32_t n) { return below(n) == 0; }
  constexpr int between(int low, int high) {  // both inclusive
    return low + static_cast<int>(below(static_cast<std::uint32_t>(high - low + 1)));
  }

 private:
  std::uint64_t state_;
};

struct number_format {
  int fraction_bits;
  int exponent_bits;

  [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] constexpr int least_exponent() const { return 1 - bias(); }
  [[nodiscard]] constexpr std::uint32_t sign() const {
    return 1u << (fraction_bits + exponent_bits);
  }
  [[nodiscard]] constexpr std::uint32_t infinity() const {
    return ((1u << exponent_bits) - 1) << fraction_bits;
  }
  [[nodiscard]] constexpr std::uint32_t one() const {
    return static_cast<std::uint32_t>(bias()) << fraction_bits;
  }
  [[nodiscard]] constexpr bool is_finite(std::uint32_t bits) const {
    return (bits & infinity()) != infinity();
  }
};
inline constexpr number_format fp16{10, 5}, bf16{7, 8}, fp32{23, 8};

// value * 2^unit, cut toward zero; it must not exceed the format.
constexpr std::uint32_t from_integer(const number_format& f, std::int64_t value, int unit) {
  if (value == 0) return 0;
  const std::uint32_t sign = value < 0 ? f.sign() : 0;
  auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  int exponent = unit + f.fraction_bits;
  const std::uint64_t hidden = std::uint64_t{1} << f.fraction_bits;
  while (magnitude >= 2 * hidden || exponent < f.least_exponent()) magnitude >>= 1, ++exponent;
  while (magnitude < hidden && exponent > f.least_exponent()) magnitude <<= 1, --exponent;
  if (magnitude < hidden) return sign | static_cast<std::uint32_t>(magnitude);  // subnormal or zero
  return sign | static_cast<std::uint32_t>(exponent + f.bias()) << f.fraction_bits |
         static_cast<std::uint32_t>(magnitude - hidden);
}

// Random sign and fraction, exponent uniform in [low, high] as far as the format has it; one below
// the least exponent gives subnormal numbers.
constexpr std::uint32_t finite(draws& r, const number_format& f, int low, int high) {
  int field = r.between(low, high) + f.bias();
  const int largest = (1 << f.exponent_bits) - 2;
  field = field < 0 ? 0 : field > largest ? largest : field;
  return static_cast<std::uint32_t>(field) << f.fraction_bits |
         (r.word() & (f.sign() | ((1u << f.fraction_bits) - 1)));
}
constexpr std::uint32_t signed_zero(draws& r, const number_format& f) {
  return r.one_in(2) ? f.sign() : 0;
}
constexpr std::uint32_t uniform(draws& r, const number_format& f) {  // (-1, 1)
  return from_integer(f, static_cast<std::int32_t>(r.word()) >> 8, -23);
}
// Twelve uniform numbers added: variance 1, times `factor` / 16.
constexpr std::uint32_t normal(draws& r, const number_format& f, int factor) {
  std::int64_t sum = -6 * (std::int64_t{1} << 24);
  for (int i = 0; i < 12; ++i) sum += r.word() >> 8;
  return from_integer(f, sum * factor, -28);
}
constexpr std::uint32_t special(draws& r, const number_format& f) {
  switch (r.below(24)) {
    case 0:
      return f.infinity() | (r.word() & f.sign());
    case 1:
      return f.infinity() | (f.infinity() >> 1) | 1u | (r.word() & f.sign());  // NaN
    case 2:
    case 3:
    case 4:
    case 5:
      return signed_zero(r, f);
    default:
      return finite(r, f, -3, 3);
  }
}

// What one element of a tensor needs to know of its place.
struct place {
  std::uint64_t stream;  // of the tensor in its tile
  int element;           // flat index
  int depth;             // of the tile
  bool odd_tile;
};

inline std::uint32_t operand_a(distribution d, const number_format& f, const place& at) {
  draws r(at.stream, static_cast<std::uint64_t>(at.element));
  const bool wide = f.exponent_bits == 8;
  const int least = f.least_exponent();
  switch (d) {
    case distribution::uniform:
      return uniform(r, f);
    case distribution::normal:
    case distribution::large_accumulator:
      return normal(r, f, 16);
    case distribution::wide_exponents:
      return wide ? finite(r, f, -40, 40) : finite(r, f, -15, 15);
    case distribution::cancellation: {  // (x, -x)
      draws pair(at.stream, static_cast<std::uint64_t>(at.element & ~1));
      return finite(pair, f, -2, 3) ^ ((at.element & 1) != 0 ? f.sign() : 0);
    }
    case distribution::tiny:
      return finite(r, f, least - 1, least + (wide ? 70 : 3));
    case distribution::sparse_signed_zeros:
      return r.one_in(5) ? finite(r, f, -3, 3) : signed_zero(r, f);
    case distribution::specials:
      return r.one_in(4) ? special(r, f) : finite(r, f, -3, 3);
    case distribution::attention:  // probabilities, each binade equally likely
      return finite(r, f, -12, -1) & ~f.sign();
    case distribution::near_overflow:
      if (!wide) return finite(r, f, 10, 15);
      return at.odd_tile ? finite(r, f, 60, 66) : finite(r, f, 57, 62);
    case distribution::zero_times_huge: {  // in every other row one element is not zero
      draws row(at.stream, 0x100000000u + static_cast<std::uint64_t>(at.element / at.depth));
      const bool any = row.one_in(2);
      const int where = static_cast<int>(row.below(static_cast<std::uint32_t>(at.depth)));
      if (any && at.element % at.depth == where) {
        return finite(r, f, least, least + (wide ? 90 : 6));
      }
      return signed_zero(r, f);
    }
    case distribution::all_products_zero:
      return signed_zero(r, f);
    case distribution::random_bits: {
      const std::uint32_t bits = r.word() & (2 * f.sign() - 1);
      return at.odd_tile && !f.is_finite(bits) ? f.one() : bits;
    }
  }
  return 0;
}

inline std::uint32_t operand_b(distribution d, const number_format& f, const place& at) {
  draws r(at.stream, static_cast<std::uint64_t>(at.element));
  const bool wide = f.exponent_bits == 8;
  switch (d) {
    case distribution::cancellation: {  // (x, x), sometimes off by one unit
      draws pair(at.stream, static_cast<std::uint64_t>(at.element & ~1));
      const std::uint32_t x = finite(pair, f, -2, 3);
      return (at.element & 1) != 0 && pair.one_in(4) ? x ^ 1u : x;
    }
    case distribution::attention:
      return normal(r, f, 11);
    case distribution::near_overflow:
      return wide ? finite(r, f, 57, 62) : finite(r, f, 10, 15);
    case distribution::zero_times_huge:
      return finite(r, f, f.bias() - 20, f.bias());
    case distribution::all_products_zero:
      return r.one_in(2) ? signed_zero(r, f) : finite(r, f, f.least_exponent(), f.bias());
    default:  // as the other operand; its stream differs
      return operand_a(d, f, at);
  }
}

inline std::uint32_t addend(distribution d, bool bf16_operands, const place& at) {
  draws r(at.stream, static_cast<std::uint64_t>(at.element));
  switch (d) {
    case distribution::uniform:
      return uniform(r, fp32);
    case distribution::normal:
      return normal(r, fp32, 64);
    case distribution::wide_exponents:
      return bf16_operands ? finite(r, fp32, -80, 80) : finite(r, fp32, -30, 30);
    case distribution::cancellation:
      return r.one_in(2) ? 0 : finite(r, fp32, -30, 2);
    case distribution::tiny:
      return r.one_in(3) ? 0 : finite(r, fp32, -127, bf16_operands ? -110 : -40);
    case distribution::large_accumulator:
      return finite(r, fp32, 4, 30);
    case distribution::sparse_signed_zeros:
      return r.one_in(2) ? signed_zero(r, fp32) : finite(r, fp32, -30, 3);
    case distribution::specials:
      switch (r.below(16)) {
        case 0:
          return fp32.infinity() | (r.word() & fp32.sign());
        case 1:
          return 0x7fc00123u;
        default:
          return normal(r, fp32, 16);
      }
    case distribution::attention:
      return normal(r, fp32, 320);
    case distribution::near_overflow:
      return finite(r, fp32, 120, 127);
    case distribution::zero_times_huge:
      return finite(r, fp32, -127, bf16_operands ? 0 : -20);
    case distribution::all_products_zero:
      switch (r.below(4)) {
        case 0:
          return 0;
        case 1:
          return fp32.sign();
        case 2:
          return finite(r, fp32, -127, -100);
        default:
          return finite(r, fp32, -40, 5);
      }
    case distribution::random_bits: {
      const std::uint32_t bits = r.word();
      return at.odd_tile && !fp32.is_finite(bits) ? fp32.one() : bits;
    }
  }
  return 0;
}

}  // namespace detail

[[nodiscard]] inline matrix_tile make_tile(std::size_t kind_idx, distribution d, int tile,
                                           std::uint64_t seed = recorded_seed) {
  const matrix_kind& kind = matrix_kinds[kind_idx];
  const detail::number_format& f = kind.bf16 ? detail::bf16 : detail::fp16;
  const std::uint64_t key =
      detail::mix(seed) ^
      detail::mix(static_cast<std::uint64_t>(kind_idx) << 48 | static_cast<std::uint64_t>(d) << 40 |
                  static_cast<std::uint64_t>(tile) << 8);
  detail::place at{0, 0, kind.depth, (tile & 1) != 0};
  matrix_tile t;
  t.a.resize(static_cast<std::size_t>(kind.rows) * kind.depth);
  t.b.resize(static_cast<std::size_t>(columns) * kind.depth);
  t.c.resize(static_cast<std::size_t>(kind.rows) * columns);
  at.stream = detail::mix(key + 1);
  for (std::size_t i = 0; i < t.a.size(); ++i) {
    at.element = static_cast<int>(i);
    t.a[i] = static_cast<std::uint16_t>(detail::operand_a(d, f, at));
  }
  at.stream = detail::mix(key + 2);
  for (std::size_t i = 0; i < t.b.size(); ++i) {
    at.element = static_cast<int>(i);
    t.b[i] = static_cast<std::uint16_t>(detail::operand_b(d, f, at));
  }
  at.stream = detail::mix(key + 3);
  for (std::size_t i = 0; i < t.c.size(); ++i) {
    at.element = static_cast<int>(i);
    t.c[i] = detail::addend(d, kind.bf16, at);
  }
  return t;
}

// ---- ex2.approx.ftz.f32 -------------------------------------------------------------------------

inline constexpr int num_ex2_classes = 8;
inline constexpr int inputs_per_ex2_class = 8192;

// fp32 pattern of input `i` of a class.
[[nodiscard]] inline std::uint32_t ex2_input(int ex2_class, int i,
                                             std::uint64_t seed = recorded_seed) {
  using detail::fp32;
  detail::draws r(detail::mix(seed) ^ detail::mix(0xe2000000u + static_cast<unsigned>(ex2_class)),
                  static_cast<std::uint64_t>(i));
  const std::int64_t fixed = r.word();  // counts 2^-32
  switch (ex2_class) {
    case 0:  // (-1, 0]
      return detail::from_integer(fp32, -fixed, -32);
    case 1:  // (-128, -1], uniform
      return detail::from_integer(fp32, -(std::int64_t{1} << 25) - (fixed * 127 >> 7), -25);
    case 2:  // [0, 1)
      return detail::from_integer(fp32, fixed, -32);
    case 3:  // [1, 128)
      return detail::from_integer(fp32, (std::int64_t{1} << 25) + (fixed * 127 >> 7), -25);
    case 4:  // small magnitudes, where the fixed-point form drops bits
      return detail::finite(r, fp32, -30, -1);
    case 5:  // around the ends of the normal range
      return detail::from_integer(fp32, (125 << 22) + (fixed * 5 >> 10), -22) |
             (r.word() & fp32.sign());
    case 6:  // zeros, subnormals, infinities, NaN
      switch (r.below(4)) {
        case 0:
          return detail::signed_zero(r, fp32);
        case 1:
          return fp32.infinity() | (r.word() & fp32.sign());
        case 2:
          return fp32.infinity() | (r.word() & (fp32.sign() | 0x7fffffu)) | 1u;
        default:
          return r.word() & (fp32.sign() | 0x7fffffu);
      }
    default:
      return r.word();
  }
}

// All 2^32 inputs in 256 slices by their upper 8 bits. A slice is recorded as the sum of the
// fingerprints of its (input, output) pairs modulo 2^64: any order gives the same sum.
inline constexpr int num_ex2_slices = 256;
inline constexpr std::uint32_t inputs_per_ex2_slice = 1u << 24;

[[nodiscard]] constexpr std::uint64_t ex2_fingerprint(std::uint32_t input, std::uint32_t output) {
  return detail::mix(static_cast<std::uint64_t>(input) << 32 | output);
}

}  // namespace kvproof::golden
