// Model of MUFU.EX2: quadratic interpolation in 64 segments with a truncated squarer. The argument
// is cut to 7.23 fixed point toward zero; a negative fraction is taken in one's complement, so that
// 2^x for x < 0 uses the point one step lower. The table is what an H200 (and the G80 of 2006, as
// envytools found) holds.
#include "reference/numerics/ex2.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace kvproof::reference {
namespace {

struct coefficients {
  std::int32_t c0, c1, c2;
};
constexpr std::array<coefficients, 64> table = {{
    {33554432, 22713, 494}, {33919815, 22960, 501}, {34289179, 23210, 506}, {34662562, 23463, 511},
    {35040015, 23718, 518}, {35421574, 23977, 521}, {35807289, 24238, 527}, {36197206, 24502, 532},
    {36591369, 24768, 541}, {36989822, 25038, 546}, {37392613, 25311, 551}, {37799794, 25586, 559},
    {38211406, 25865, 564}, {38627501, 26147, 568}, {39048128, 26431, 577}, {39473334, 26719, 583},
    {39903170, 27010, 589}, {40337687, 27304, 596}, {40776934, 27602, 600}, {41220967, 27902, 609},
    {41669833, 28206, 615}, {42123589, 28513, 622}, {42582283, 28824, 627}, {43045974, 29138, 633},
    {43514714, 29455, 641}, {43988558, 29776, 647}, {44467562, 30100, 655}, {44951783, 30428, 661},
    {45441275, 30759, 670}, {45936098, 31094, 677}, {46436311, 31432, 686}, {46941968, 31775, 691},
    {47453132, 32121, 699}, {47969864, 32471, 705}, {48492222, 32824, 715}, {49020266, 33182, 721},
    {49554062, 33543, 730}, {50093671, 33908, 739}, {50639156, 34277, 748}, {51190579, 34651, 753},
    {51748008, 35028, 763}, {52311507, 35409, 773}, {52881143, 35795, 779}, {53456980, 36185, 787},
    {54039088, 36579, 796}, {54627535, 36977, 806}, {55222390, 37380, 813}, {55823722, 37787, 822},
    {56431604, 38198, 833}, {57046103, 38614, 842}, {57667294, 39035, 849}, {58295251, 39460, 858},
    {58930045, 39889, 870}, {59571751, 40324, 877}, {60220444, 40763, 887}, {60876202, 41207, 896},
    {61539101, 41655, 909}, {62209217, 42109, 917}, {62886631, 42568, 925}, {63571421, 43031, 938},
    {64263669, 43500, 946}, {64963455, 43973, 959}, {65670860, 44452, 969}, {66385969, 44936, 980},
}};

// The square of a 17-bit number in units of 2^19, partial products cut below 2^18.
constexpr std::uint32_t truncated_square(std::uint32_t v) {
  std::uint32_t sum = 0;
  for (int i = 1; i < 17; ++i) sum += (v >> i & 1u) * (v >> (18 - i));
  return sum >> 1;
}

}  // namespace

float ex2_approx(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const bool negative = bits >> 31 != 0;
  if (magnitude > 0x7f800000u) return std::bit_cast<float>(0x7fffffffu);
  if (magnitude >= 0x43000000u)
    return std::bit_cast<float>(negative ? 0u : 0x7f800000u);  // |x| >= 128

  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  std::uint32_t fixed = 0;  // |x| * 2^23, cut toward zero
  if (magnitude >= 0x00800000u && exponent >= -23) {
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    fixed = exponent >= 0 ? significand << exponent : significand >> -exponent;
  }
  int integer = static_cast<int>(fixed >> 23);
  std::uint32_t fraction = fixed & 0x7fffffu;
  if (negative) {
    integer = fraction != 0 ? -integer - 1 : -integer;
    if (fraction != 0) fraction = 0x7fffffu - fraction;
  }
  const coefficients& c = table[fraction >> 17];
  const std::uint32_t v = fraction & 0x1ffffu;
  const std::int64_t y =
      ((std::int64_t{c.c0} << 13) + std::int64_t{c.c1} * v +
       std::int64_t{c.c2} * truncated_square(v) + 0x77e2) >>
      15;  // the 24-bit significand, in [2^23, 2^24]; a carry moves to the exponent
  if (integer + 127 > 254) return std::bit_cast<float>(0x7f800000u);
  const std::int32_t result = (integer + 127) * 0x800000 + static_cast<std::int32_t>(y - 0x800000);
  return std::bit_cast<float>(result < 0x800000 ? 0u : static_cast<std::uint32_t>(result));
}

}  // namespace kvproof::reference
