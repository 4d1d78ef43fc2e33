// mma.sync: where each element of the fragments goes, and the arithmetic at its corners.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <random>

#include "reference/spec/error.hpp"
#include "tests/gpu/emulator/ptx_fixture.hpp"

namespace kvproof::gpu::emulator {
namespace {

struct matrices {
  std::uint16_t a[16][16] = {};
  std::uint16_t b[16][8] = {};
  std::uint32_t c[16][8] = {};
};
struct product {
  std::uint32_t d[16][8];
};

std::uint64_t pair(std::uint16_t low, std::uint16_t high) {
  return std::uint64_t{low} | std::uint64_t{high} << 16;
}

// Lane 4g + t holds rows g and g + 8, columns 2t and 2t + 1.
product product_of(const std::vector<results>& out) {
  product p;
  for (std::size_t l = 0; l < 32; ++l) {
    for (std::size_t e = 0; e < 4; ++e)
      p.d[l / 4 + 8 * (e / 2)][2 * (l % 4) + e % 2] =
          static_cast<std::uint32_t>(out[l][e / 2] >> (32 * (e % 2)));
  }
  return p;
}

// In two launches, because a thread has four sources: the sum over k and c is split over registers.
product multiply(const matrices& m, const std::string& format) {
  std::vector<sources> in(32);
  for (std::size_t l = 0; l < 32; ++l) {
    const std::size_t g = l / 4;
    const std::size_t q = 2 * (l % 4);
    in[l][0] = pair(m.a[g][q], m.a[g][q + 1]) | pair(m.a[g + 8][q], m.a[g + 8][q + 1]) << 32;
    in[l][1] = pair(m.a[g][q + 8], m.a[g][q + 9]) | pair(m.a[g + 8][q + 8], m.a[g + 8][q + 9])
                                                        << 32;
    in[l][2] = pair(m.b[q][g], m.b[q + 1][g]) | pair(m.b[q + 8][g], m.b[q + 9][g]) << 32;
    in[l][3] = m.c[g][q] | std::uint64_t{m.c[g + 8][q + 1]} << 32;
    BOOST_REQUIRE(m.c[g][q] == m.c[g][q + 1] && m.c[g + 8][q] == m.c[g + 8][q + 1]);
  }
  const auto out = ptx_run{}(fmt::format(R"(
mov.b64 {{%r4, %r5}}, %a0; mov.b64 {{%r6, %r7}}, %a1; mov.b64 {{%r8, %r9}}, %a2; mov.b64 {{%f0, %f1}}, %a3;
mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 {{%f2, %f3, %f4, %f5}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%f0, %f0, %f1, %f1}};
mov.b64 %d0, {{%f2, %f3}}; mov.b64 %d1, {{%f4, %f5}};)",
                                         format),
                             in);
  return product_of(out);
}

// d[0][0] of the products a[k] * b[k] and c.
std::uint32_t dot(const std::string& format,
                  const std::vector<std::pair<std::uint16_t, std::uint16_t>>& ab, std::uint32_t c) {
  matrices m;
  for (std::size_t k = 0; k < ab.size(); ++k) {
    m.a[0][k] = ab[k].first;
    m.b[k][0] = ab[k].second;
  }
  m.c[0][0] = m.c[0][1] = c;
  return multiply(m, format).d[0][0];
}

// Operands of m16n8k32 as bytes; c has one value for two neighbouring columns: the odd one is the
// complement of the even one.
struct byte_matrices {
  std::uint8_t a[16][32] = {};
  std::uint8_t b[32][8] = {};
  std::uint32_t c[16][4] = {};

  [[nodiscard]] std::uint32_t addend(std::size_t r, std::size_t n) const {
    return n % 2 == 0 ? c[r][n / 2] : ~c[r][n / 2];
  }
  // Four bytes of A from column k, of B from row k.
  [[nodiscard]] std::uint64_t word_a(std::size_t row, std::size_t k) const {
    return word(a[row][k], a[row][k + 1], a[row][k + 2], a[row][k + 3]);
  }
  [[nodiscard]] std::uint64_t word_b(std::size_t column, std::size_t k) const {
    return word(b[k][column], b[k + 1][column], b[k + 2][column], b[k + 3][column]);
  }

 private:
  static std::uint64_t word(std::uint8_t x, std::uint8_t y, std::uint8_t z, std::uint8_t w) {
    return static_cast<std::uint64_t>(x | y << 8 | z << 16) | std::uint64_t{w} << 24;
  }
};

product multiply(const byte_matrices& m, const std::string& format_a, const std::string& format_b) {
  std::vector<sources> in(32);
  for (std::size_t l = 0; l < 32; ++l) {
    const std::size_t g = l / 4;
    const std::size_t t = l % 4;
    in[l][0] = m.word_a(g, 4 * t) | m.word_a(g + 8, 4 * t) << 32;
    in[l][1] = m.word_a(g, 16 + 4 * t) | m.word_a(g + 8, 16 + 4 * t) << 32;
    in[l][2] = m.word_b(g, 4 * t) | m.word_b(g, 16 + 4 * t) << 32;
    in[l][3] = m.c[g][t] | std::uint64_t{m.c[g + 8][t]} << 32;
  }
  const auto out = ptx_run{}(fmt::format(R"(
mov.b64 {{%r4, %r5}}, %a0; mov.b64 {{%r6, %r7}}, %a1; mov.b64 {{%r8, %r9}}, %a2; mov.b64 {{%r10, %r12}}, %a3;
not.b32 %r11, %r10; not.b32 %r13, %r12;
mma.sync.aligned.m16n8k32.row.col.s32.{}.{}.s32 {{%r13, %r12, %r11, %r10}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%r10, %r11, %r12, %r13}};
mov.b64 %d0, {{%r13, %r12}}; mov.b64 %d1, {{%r11, %r10}};)",
                                         format_a, format_b),
                             in);
  return product_of(out);
}

std::int64_t value_of(std::uint8_t bits, const std::string& format) {
  return format == "s8" ? std::int64_t{static_cast<std::int8_t>(bits)} : std::int64_t{bits};
}

const std::string byte_formats[] = {"u8", "s8"};

// All four combinations of formats against a triple loop, modulo 2^32.
void check_bytes(const byte_matrices& m) {
  for (const std::string& format_a : byte_formats) {
    for (const std::string& format_b : byte_formats) {
      const product p = multiply(m, format_a, format_b);
      for (std::size_t r = 0; r < 16; ++r) {
        for (std::size_t n = 0; n < 8; ++n) {
          std::int64_t sum = m.addend(r, n);
          for (std::size_t k = 0; k < 32; ++k)
            sum += value_of(m.a[r][k], format_a) * value_of(m.b[k][n], format_b);
          BOOST_TEST(p.d[r][n] == static_cast<std::uint32_t>(sum),
                     format_a << " x " << format_b << ", row " << r << ", column " << n);
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor)

BOOST_AUTO_TEST_CASE(one_hot) {
  for (std::size_t k = 0; k < 16; ++k) {
    const std::size_t row = (5 * k + 3) % 16;
    const std::size_t column = (3 * k + 1) % 8;
    matrices m;
    m.a[row][k] = 0x4000;     // 2
    m.b[k][column] = 0x4200;  // 3
    const product p = multiply(m, "f16");
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t n = 0; n < 8; ++n)
        BOOST_TEST(p.d[r][n] == (r == row && n == column ? 0x40c00000u : 0u));
  }
}

BOOST_AUTO_TEST_CASE(truncation) {
  // 1 + 2^-24 is cut at 24 bits; with 25 fraction bits two halves of 2^-24 still add up to 2^-24
  BOOST_TEST(dot("f16", {{0x3c00, 0x3c00}}, 0x33800000) == 0x3f800000u);
  // 1 + 2 * 2^-24 = 1 + 2^-23: both addends survive the alignment
  BOOST_TEST(dot("f16", {{0x3c00, 0x3c00}, {0x0001, 0x3c00}, {0x0001, 0x3c00}}, 0) == 0x3f800001u);
  // 1 + 4 * 2^-25 with 25 fraction bits, each 2^-25 kept
  BOOST_TEST(dot("f16",
                 {{0x3c00, 0x3c00},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800}},
                 0) == 0x3f800001u);
  // 2^-26 each is lost, however many
  BOOST_TEST(dot("f16",
                 {{0x3c00, 0x3c00},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400},
                  {0x0001, 0x3400}},
                 0) == 0x3f800000u);
  // toward zero for negative sums: -1 + 2^-25 = -(1 - 2^-25) -> -(1 - 2^-24)
  BOOST_TEST(dot("f16", {{0xbc00, 0x3c00}, {0x0001, 0x3800}}, 0) == 0xbf7fffffu);
  // the product exponent is not renormalised: 1.5 * 1.5 counts as 2^0
  BOOST_TEST(dot("f16",
                 {{0x3e00, 0x3e00},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800},
                  {0x0001, 0x3800}},
                 0) == 0x40100001u);
}

BOOST_AUTO_TEST_CASE(special_values) {
  BOOST_TEST(dot("f16", {{0x7c00, 0x0000}}, 0) == 0x7fffffffu);
  BOOST_TEST(dot("f16", {{0x7c00, 0x3c00}, {0xfc00, 0x3c00}}, 0) == 0x7fffffffu);
  BOOST_TEST(dot("f16", {{0x7c00, 0xbc00}}, 0) == 0xff800000u);
  BOOST_TEST(dot("f16", {{0x7e01, 0x3c00}}, 0) == 0x7fffffffu);
  BOOST_TEST(dot("f16", {}, 0x80000000) == 0u);
  BOOST_TEST(dot("f16", {{0x3c00, 0x3c00}, {0xbc00, 0x3c00}}, 0) == 0u);
  BOOST_TEST(dot("f16", {}, 0x00000001) == 0x00000001u);  // zeros take no part
  BOOST_TEST(dot("f16", {{0x0000, 0x3c00}}, 0x00000001) == 0x00000001u);
  BOOST_TEST(dot("f16", {{0x0001, 0x0001}}, 0) == 0x27800000u);  // 2^-48
  BOOST_TEST(dot("f16", {{0x7bff, 0x7bff}}, 0x7f7fffff) == 0x7f7fffffu);
  BOOST_TEST(dot("bf16", {{0x7f7f, 0x7f7f}}, 0) == 0x7f800000u);  // finite overflow
  BOOST_TEST(dot("bf16", {{0x7f7f, 0x7f7f}, {0xff7f, 0x7f7f}}, 0x3f800000) ==
             0u);                                                 // cancels; 1 is cut
  BOOST_TEST(dot("bf16", {{0x0080, 0x3f00}}, 0) == 0x00400000u);  // subnormal result
  BOOST_TEST(dot("bf16", {{0x0001, 0x8001}}, 0) == 0u);  // a negative sum cut to zero is +0
}

BOOST_AUTO_TEST_CASE(bytes_one_hot) {
  for (std::size_t k = 0; k < 32; ++k) {
    const std::size_t row = (5 * k + 3) % 16;
    const std::size_t column = (3 * k + 1) % 8;
    byte_matrices m;
    m.a[row][k] = 0xfe;
    m.b[k][column] = 0xfd;
    const product p = multiply(m, "u8", "s8");  // 254 * -3
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t n = 0; n < 8; ++n)
        BOOST_TEST(p.d[r][n] == (r == row && n == column ? -762u : 0u) + m.addend(r, n));
  }
}

BOOST_AUTO_TEST_CASE(bytes_extremes) {
  constexpr std::array<std::uint8_t, 5> extremes{0x00, 0x01, 0x7f, 0x80, 0xff};
  for (const std::uint8_t a : extremes) {
    for (const std::uint8_t b : extremes) {
      byte_matrices m;
      std::fill_n(&m.a[0][0], 16 * 32, a);
      std::fill_n(&m.b[0][0], 32 * 8, b);
      check_bytes(m);
    }
  }
}

BOOST_AUTO_TEST_CASE(bytes_wrap_around) {
  byte_matrices m;
  std::fill_n(&m.a[0][0], 16 * 32, std::uint8_t{0xff});
  std::fill_n(&m.b[0][0], 32 * 8, std::uint8_t{0x80});
  for (std::size_t r = 0; r < 16; ++r) {
    m.c[r][0] = 0x7fffffff;  // beside it 0x80000000
    m.c[r][1] = 0x7fff0000;
  }
  const product up = multiply(m, "u8", "u8");
  BOOST_TEST(up.d[0][0] == 0x7fffffffu + 32u * 255u * 128u);  // above 2^31 - 1
  const product down = multiply(m, "u8", "s8");
  BOOST_TEST(down.d[0][1] == 0x80000000u - 32u * 255u * 128u);  // below -2^31
  check_bytes(m);
}

BOOST_AUTO_TEST_CASE(bytes_random) {
  std::mt19937 random(20260);
  for (int round = 0; round < 50; ++round) {
    byte_matrices m;
    for (auto& line : m.a)
      for (std::uint8_t& x : line) x = static_cast<std::uint8_t>(random());
    for (auto& line : m.b)
      for (std::uint8_t& x : line) x = static_cast<std::uint8_t>(random());
    for (auto& line : m.c)
      for (std::uint32_t& x : line) x = static_cast<std::uint32_t>(random());
    check_bytes(m);
  }
}

BOOST_AUTO_TEST_CASE(products_are_counted) {
  const auto dev = open({});
  const auto k = dev->load({"hand_written",
                            R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test()
{
.reg .b32 %r<9>; .reg .f32 %f<5>;
mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%r0, %r1, %r2, %r3};
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%r0, %r1, %r2, %r3};
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
ret;
}
)",
                            {}},
                           "test");
  launch_shape shape;
  shape.block.x = 64;
  dev->launch(*k, shape, {});
  BOOST_TEST(dev->totals().mmas == 6);  // of two warps
}

BOOST_AUTO_TEST_CASE(unknown_products_are_refused) {
  for (const std::string op :
       {"m16n8k32.row.col.satfinite.s32.u8.s8.s32", "m16n8k16.row.col.s32.u8.s8.s32",
        "m16n8k32.row.col.s32.f16.f16.s32", "m16n8k32.row.col.f32.u8.s8.f32"}) {
    BOOST_CHECK_THROW(
        evaluate("mma.sync.aligned." + op +
                     " {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r4, %r5, %r6, "
                     "%r7};",
                 {}),
        spec::device_error);
  }
}

BOOST_AUTO_TEST_CASE(matrix_moves) {
  std::vector<sources> in(32);
  for (std::size_t l = 0; l < 32; ++l)
    in[l][0] = pair(static_cast<std::uint16_t>(2 * l), static_cast<std::uint16_t>(2 * l + 1));
  ptx_run run;
  run.module_scope = ".shared .align 16 .b8 tile[128];";
  const auto out = run(R"(
movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r0;
mov.u32 %r5, tile; shl.b32 %r6, %r30, 2; add.u32 %r7, %r5, %r6; st.shared.u32 [%r7], %r0; bar.warp.sync -1;
and.b32 %r8, %r30, 7; shl.b32 %r8, %r8, 4; add.u32 %r8, %r8, %r5;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r8];
ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r8];
mov.b64 %d0, {%r4, %r9}; cvt.u64.u32 %d1, %r10;)",
                       in);
  for (std::uint64_t l = 0; l < 32; ++l) {
    const std::uint64_t row = l / 4;
    const std::uint64_t column = 2 * (l % 4);
    const std::uint64_t transposed = (column * 8 + row) | ((column + 1) * 8 + row) << 16;
    BOOST_TEST((out[l][0] & 0xffffffffu) == transposed);
    BOOST_TEST(out[l][0] >> 32 == in[l][0]);
    BOOST_TEST(out[l][1] == transposed);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::gpu::emulator
