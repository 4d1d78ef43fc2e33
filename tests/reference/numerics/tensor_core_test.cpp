// The tensor-core model: published special cases of sm_80 and sm_90, invariances, and equality of
// the vector form with the scalar one. What the hardware computes is compared in
// tests/golden/tensor_core_test.cpp.
#include "reference/numerics/tensor_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core_group.hpp"
#include "reference/spec/error.hpp"
#include "tests/golden/golden_inputs.hpp"

namespace {

using namespace kvproof::reference;
using kvproof::golden::distribution;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t canonical_nan = 0x7fffffffu;

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float from_bits(std::uint32_t x) { return std::bit_cast<float>(x); }

// One dot product of 16, all zero but for what is set.
struct dot16 {
  std::array<std::uint16_t, 16> a{}, b{};

  dot16& set(int k, float x, float y) {
    a[k] = float_to_half(x);
    b[k] = float_to_half(y);
    return *this;
  }
  [[nodiscard]] std::uint32_t sm_90(float c) const {
    return bits_of(mma_dot(a, b, c, architecture::sm_90));
  }
  [[nodiscard]] std::uint32_t sm_80(float c) const {
    return bits_of(mma_dot(a, b, c, architecture::sm_80));
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(small_integers_are_exact) {
  dot16 d;
  for (int k = 0; k < 16; ++k) d.set(k, static_cast<float>(k + 1), 2);
  BOOST_TEST(d.sm_80(0.5f) == bits_of(272.5f));
  BOOST_TEST(d.sm_90(0.5f) == bits_of(272.5f));
}

// 1 - 1 cancels; a third term survives only if the aligned fraction reaches it.
BOOST_AUTO_TEST_CASE(fraction_bits_of_the_alignment) {
  const dot16 d24 = dot16().set(0, 1, 1).set(1, 0x1p-12f, 0x1p-12f);
  const dot16 d25 = dot16().set(0, 1, 1).set(1, 0x1p-12f, 0x1p-13f);
  const dot16 d26 = dot16().set(0, 1, 1).set(1, 0x1p-13f, 0x1p-13f);
  BOOST_TEST(d24.sm_80(-1) == bits_of(0x1p-24f));
  BOOST_TEST(d24.sm_90(-1) == bits_of(0x1p-24f));
  BOOST_TEST(d25.sm_80(-1) == 0u);
  BOOST_TEST(d25.sm_90(-1) == bits_of(0x1p-25f));
  BOOST_TEST(d26.sm_90(-1) == 0u);
}

BOOST_AUTO_TEST_CASE(groups_of_8_on_sm_80_and_16_on_sm_90) {
  const dot16 halves = dot16().set(0, 4096, 4096).set(8, -4096, 4096);
  BOOST_TEST(halves.sm_80(1) == 0u);
  BOOST_TEST(halves.sm_90(1) == bits_of(1.0f));
  BOOST_TEST(dot16().set(0, 4096, 4096).set(1, -4096, 4096).sm_80(1) == bits_of(1.0f));
}

BOOST_AUTO_TEST_CASE(result_is_truncated) {
  BOOST_TEST(dot16().set(0, 0x1p-12f, 0x1.8p-12f).sm_90(1) == bits_of(1.0f));
  BOOST_TEST(dot16().set(0, -0x1p-12f, 0x1.8p-12f).sm_90(-1) == bits_of(-1.0f));
}

// The magnitude of each term is truncated, not its two's complement.
BOOST_AUTO_TEST_CASE(terms_are_truncated_toward_zero) {
  BOOST_TEST(dot16().set(0, 1, 1).set(1, -0x1p-13f, 0x1p-13f).sm_90(-1) == 0u);
}

// 1.5 * 1.5 = 2.25 counts with exponent 0: 2^-25 is still in reach, unlike after normalisation.
BOOST_AUTO_TEST_CASE(products_are_not_normalised) {
  const dot16 d = dot16().set(0, 1.5f, 1.5f).set(1, -1.5f, 1.5f).set(2, 0x1p-12f, 0x1p-13f);
  BOOST_TEST(d.sm_90(0) == bits_of(0x1p-25f));
}

BOOST_AUTO_TEST_CASE(subnormal_operands_and_addends) {
  dot16 d;
  d.a[0] = d.b[0] = 1;
  BOOST_TEST(d.sm_90(0) == bits_of(0x1p-48f));
  BOOST_TEST(dot16().sm_90(from_bits(0x00012345u)) == 0x00012345u);
  BOOST_TEST(dot16().sm_90(from_bits(0x80000001u)) == 0x80000001u);
}

BOOST_AUTO_TEST_CASE(infinities_nan_and_overflow) {
  dot16 d;
  d.a[0] = 0x7c00;
  d.b[0] = float_to_half(2);
  BOOST_TEST(d.sm_90(1) == bits_of(infinity));
  BOOST_TEST(d.sm_90(-infinity) == canonical_nan);
  d.b[0] = 0x8000;
  BOOST_TEST(d.sm_90(1) == canonical_nan);  // infinity times zero
  d.a[0] = 0xfc00;
  d.b[0] = float_to_half(2);
  BOOST_TEST(d.sm_90(1) == bits_of(-infinity));
  d.a[0] = 0xfe01;
  BOOST_TEST(d.sm_90(1) == canonical_nan);
  BOOST_TEST(d.sm_80(1) == canonical_nan);
  BOOST_TEST(dot16().sm_90(from_bits(0xffc00123u)) == canonical_nan);
  BOOST_TEST(dot16().set(0, 60000, 60000).sm_90(0x1.fffffep127f) == bits_of(0x1.fffffep127f));
  dot16 large;
  for (int k = 0; k < 16; ++k) large.set(k, 65504, 65504);
  BOOST_TEST(large.sm_90(0) == bits_of(68652384256.0f));
  const std::array<std::uint16_t, 8> huge{0x7f7f}, negative{0xff7f};  // bf16: largest * largest
  BOOST_TEST(bits_of(mma_dot(huge, huge, 0, architecture::sm_90, operand_type::bf16)) ==
             bits_of(infinity));
  BOOST_TEST(bits_of(mma_dot(huge, negative, 0, architecture::sm_90, operand_type::bf16)) ==
             bits_of(-infinity));
}

BOOST_AUTO_TEST_CASE(zero_results_are_positive) {
  BOOST_TEST(dot16().sm_90(-0.0f) == 0u);
  BOOST_TEST(dot16().set(3, -0.0f, 1).sm_90(-0.0f) == 0u);
  BOOST_TEST(dot16().set(0, 1, 1).sm_90(-1) == 0u);
}

// Zeros take no part in the alignment: beside 0 * 65504 the addend keeps all its bits.
BOOST_AUTO_TEST_CASE(zero_products_do_not_align) {
  const float c = 0x1.234566p-100f;
  BOOST_TEST(dot16().set(0, 0, 65504).sm_90(c) == bits_of(c));
}

// bf16 products below 2^-126 are aligned at 2^-133 (sm_80: 2^-132) at least, so that the aligned
// fractions end at 2^-158 (2^-156). Just below 2^-149, the least fp32 number, one last unit is
// seen, and two halves of it are not.
BOOST_AUTO_TEST_CASE(exponent_floor) {
  const auto sum_of = [](float x0, float y0, float x1, float y1, int copies, architecture arch) {
    std::array<std::uint16_t, 16> a{}, b{};
    a[0] = float_to_bfloat16(x0);
    b[0] = float_to_bfloat16(y0);
    for (int k = 1; k <= copies; ++k) {
      a[k] = float_to_bfloat16(x1);
      b[k] = float_to_bfloat16(y1);
    }
    return bits_of(mma_dot(a, b, 0, arch, operand_type::bf16));
  };
  // 7 * 73 = 2^9 - 1
  BOOST_TEST(sum_of(7 * 0x1p-79f, 73 * 0x1p-79f, 0x1p-79f, 0x1p-79f, 1, architecture::sm_90) == 1u);
  BOOST_TEST(sum_of(7 * 0x1p-79f, 73 * 0x1p-79f, 0x1p-79f, 0x1p-80f, 2, architecture::sm_90) == 0u);
  BOOST_TEST(sum_of(127 * 0x1p-78f, 0x1p-78f, 0x1p-78f, 0x1p-78f, 1, architecture::sm_80) == 1u);
  BOOST_TEST(sum_of(127 * 0x1p-78f, 0x1p-78f, 0x1p-78f, 0x1p-79f, 2, architecture::sm_80) == 0u);
}

BOOST_AUTO_TEST_CASE(order_inside_a_group_does_not_matter) {
  kvproof::golden::detail::draws r(7, 0);
  int differ_on_sm_80 = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    dot16 d;
    for (int k = 0; k < 16; ++k) {
      d.a[k] = static_cast<std::uint16_t>(r.word() & 0xbbff);
      d.b[k] = static_cast<std::uint16_t>(r.word() & 0xbbff);
    }
    const float c = from_bits(r.word() & 0xbfffffffu);
    dot16 shuffled = d, halves = d;
    for (int k = 15; k > 0; --k) {
      const auto other = r.below(static_cast<std::uint32_t>(k + 1));
      std::swap(shuffled.a[k], shuffled.a[other]);
      std::swap(shuffled.b[k], shuffled.b[other]);
    }
    for (const int k : {0, 8}) {
      std::reverse(&halves.a[k], &halves.a[k] + 8);
      std::reverse(&halves.b[k], &halves.b[k] + 8);
    }
    BOOST_REQUIRE_EQUAL(d.sm_90(c), shuffled.sm_90(c));
    BOOST_REQUIRE_EQUAL(d.sm_80(c), halves.sm_80(c));
    differ_on_sm_80 += d.sm_80(c) != shuffled.sm_80(c) ? 1 : 0;
  }
  BOOST_TEST(differ_on_sm_80 > 0);
}

// Chained k16 steps: the result of a step is the addend of the next.
BOOST_AUTO_TEST_CASE(chain_equals_steps) {
  const auto tile = kvproof::golden::make_tile(3, distribution::normal, 0, 99);
  int differs_from_one_sum = 0;
  for (int m = 0; m < 64; ++m) {
    const std::span a(&tile.a[m * 64], 64), b(&tile.b[m % 8 * 64], 64);
    float c = from_bits(tile.c[m * 8]);
    const float chained = mma_dot(a, b, c, architecture::sm_90);
    for (int k = 0; k < 64; k += 16) {
      c = mma_dot(a.subspan(k, 16), b.subspan(k, 16), c, architecture::sm_90);
    }
    BOOST_REQUIRE_EQUAL(bits_of(c), bits_of(chained));
    float reversed = from_bits(tile.c[m * 8]);
    for (int k = 48; k >= 0; k -= 16) {
      reversed = mma_dot(a.subspan(k, 16), b.subspan(k, 16), reversed, architecture::sm_90);
    }
    differs_from_one_sum += bits_of(reversed) != bits_of(chained) ? 1 : 0;
  }
  BOOST_TEST(differs_from_one_sum > 0);
}

namespace {

// 64 x 8 outputs of one distribution by both forms of mma_matrix and by mma_dot. Returns how many
// steps the vector form left to the scalar model.
std::int64_t compare_forms(std::size_t kind, distribution d, int tile, architecture arch) {
  const auto& shape = kvproof::golden::matrix_kinds[kind];
  const operand_type type = shape.bf16 ? operand_type::bf16 : operand_type::fp16;
  const auto in = kvproof::golden::make_tile(kind, d, tile, 4711);
  std::vector<std::uint16_t> b(in.b.size());  // [depth][8]
  for (int n = 0; n < 8; ++n) {
    for (int k = 0; k < shape.depth; ++k) b[k * 8 + n] = in.b[n * shape.depth + k];
  }
  std::vector<float> c(in.c.size());
  std::transform(in.c.begin(), in.c.end(), c.begin(), from_bits);
  std::vector<float> vector = c, scalar = c;
  const std::int64_t scalar_steps = mma_matrix_avx2(vector, in.a, b, arch, type);
  mma_matrix_scalar(scalar, in.a, b, arch, type);
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::span a_row(&in.a[i / 8 * shape.depth], shape.depth);
    const std::span b_column(&in.b[i % 8 * shape.depth], shape.depth);
    const std::uint32_t expected = bits_of(mma_dot(a_row, b_column, c[i], arch, type));
    if (bits_of(scalar[i]) != expected || bits_of(vector[i]) != expected) {
      BOOST_FAIL(fmt::format(
          "{} distribution {} tile {} output {}: dot {:#010x}, matrix {:#010x}, vector {:#010x}",
          shape.name, static_cast<int>(d), tile, i, expected, bits_of(scalar[i]),
          bits_of(vector[i])));
    }
  }
  return scalar_steps;
}

}  // namespace

BOOST_AUTO_TEST_CASE(vector_form_equals_scalar_form,
                     *boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
                       return boost::test_tools::assertion_result(has_avx2());
                     })) {
  for (const std::size_t kind : {3, 4}) {
    std::array<std::int64_t, kvproof::golden::num_distributions> scalar_steps{};
    for (int d = 0; d < kvproof::golden::num_distributions; ++d) {
      for (int tile = 0; tile < 12; ++tile) {
        for (const architecture arch : {architecture::sm_80, architecture::sm_90}) {
          scalar_steps[d] += compare_forms(kind, static_cast<distribution>(d), tile, arch);
        }
      }
    }
    // Ordinary data never leave the vector path; each guard is seen to act.
    for (const distribution d : {distribution::uniform, distribution::normal,
                                 distribution::attention, distribution::cancellation}) {
      BOOST_TEST(scalar_steps[static_cast<int>(d)] == 0);
    }
    for (const distribution d : {distribution::specials, distribution::near_overflow,
                                 distribution::all_products_zero, distribution::random_bits}) {
      BOOST_TEST(scalar_steps[static_cast<int>(d)] > 0);
    }
  }
}

// Sixteen products just below 4 fit an int32 of 25 fraction bits, with an addend near 2 they do
// not.
BOOST_AUTO_TEST_CASE(vector_form_guards_the_integer_sum,
                     *boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
                       return boost::test_tools::assertion_result(has_avx2());
                     })) {
  for (const float sign : {1.0f, -1.0f}) {
    const std::vector<std::uint16_t> a(16, float_to_half(sign * 0x1.ffcp0f)), b(16 * 8, 0x3fff);
    std::vector<float> vector = {0, sign * 1.9f, 0, 0, 0, 0, 0, sign * 1.9f};
    std::vector<float> scalar = vector;
    BOOST_TEST(mma_matrix_avx2(vector, a, b, architecture::sm_90, operand_type::fp16) == 2);
    mma_matrix_scalar(scalar, a, b, architecture::sm_90, operand_type::fp16);
    BOOST_TEST(vector == scalar);
    BOOST_TEST(scalar[0] == sign * 0x1.ff8008p5f);
    BOOST_TEST(std::fabs(scalar[1]) > 65);
  }
}

BOOST_AUTO_TEST_CASE(matrix_leaves_the_floating_point_environment) {
  const std::vector<std::uint16_t> a(16, 0x3c01), b(16 * 8, 0x3c01);
  std::vector<float> c(8, 0.0f);
  mma_matrix(c, a, b, architecture::sm_90);
  BOOST_TEST(fp_environment_is_clean());
  BOOST_TEST(bits_of(c[0]) == bits_of(mma_dot(a, a, 0, architecture::sm_90)));
}

BOOST_AUTO_TEST_CASE(empty_and_wrong_shapes) {
  using kvproof::spec::contract_error;
  std::vector<float> c(16, 1.5f);
  const std::vector<std::uint16_t> a(32, 0x3c00), b(16 * 8, 0x3c00);
  const auto arch = architecture::sm_90;
  mma_matrix(std::span<float>(), {}, b, arch);
  mma_matrix(c, {}, {}, arch);  // no products: c stays
  BOOST_TEST(c[15] == 1.5f);
  BOOST_TEST(bits_of(mma_dot({}, {}, -0.0f, arch)) == bits_of(-0.0f));
  BOOST_CHECK_THROW(mma_matrix(std::span(c).first(15), a, b, arch), contract_error);
  BOOST_CHECK_THROW(mma_matrix(c, std::span(a).first(31), b, arch), contract_error);
  BOOST_CHECK_THROW(mma_matrix(c, std::span(a).first(16), std::span(b).first(64), arch),
                    contract_error);
  BOOST_CHECK_THROW((void)mma_dot(a, std::span(a).first(16), 0, arch), contract_error);
  BOOST_CHECK_THROW((void)mma_dot(std::span(a).first(4), std::span(a).first(4), 0, arch),
                    contract_error);
}
