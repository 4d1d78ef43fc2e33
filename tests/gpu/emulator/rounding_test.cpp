// Every rounding mode of f32 and f64 arithmetic against the processor's own under fesetround.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>

#include "reference/spec/error.hpp"
#include "tests/gpu/emulator/ptx_fixture.hpp"

namespace kvproof::gpu::emulator {
namespace {

template <class T>
using bits_of_float = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

struct mode {
  const char* name;
  int environment;
};
constexpr mode modes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

struct operation {
  const char* name;
  int sources;
  bool saturates;  // .sat exists for f32
};
constexpr operation operations[] = {{"add", 2, true},  {"sub", 2, true},  {"mul", 2, true},
                                    {"fma", 3, true},  {"div", 2, false}, {"rcp", 1, false},
                                    {"sqrt", 1, false}};

// The volatile operands keep the operation between the two calls of fesetround.
template <class T>
T oracle(std::string_view name, T a, T b, T c, int environment) {
  const volatile T x = a;
  const volatile T y = b;
  const volatile T z = c;
  volatile T r = 0;
  std::fesetround(environment);
  if (name == "add") r = x + y;
  if (name == "sub") r = x - y;
  if (name == "mul") r = x * y;
  if (name == "fma") r = std::fma(x, y, z);
  if (name == "div") r = x / y;
  if (name == "rcp") r = T{1} / x;
  if (name == "sqrt") r = std::sqrt(x);
  std::fesetround(FE_TONEAREST);
  return r;
}

template <class T>
T flush(T x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}
template <class T>
std::uint64_t expected(const operation& o, const std::array<T, 3>& in, int environment, bool ftz,
                       bool sat) {
  const auto f = [ftz](T x) { return ftz ? flush(x) : x; };
  T r = f(oracle(o.name, f(in[0]), f(in[1]), f(in[2]), environment));
  if (sat) {
    if (std::isnan(r) || r <= 0) return 0;
    r = std::fmin(r, T{1});
  }
  if (std::isnan(r)) return static_cast<std::uint64_t>(~bits_of_float<T>{0} >> 1);
  return std::bit_cast<bits_of_float<T>>(r);
}

template <class T>
std::vector<T> corners() {
  using limits = std::numeric_limits<T>;
  const T normal = limits::min();
  std::vector<T> r{0,
                   limits::denorm_min(),
                   normal - limits::denorm_min(),
                   normal,
                   normal + limits::denorm_min(),
                   limits::max(),
                   std::nextafter(limits::max(), T{0}),
                   limits::infinity(),
                   limits::quiet_NaN(),
                   1,
                   1 + limits::epsilon(),
                   1 - limits::epsilon() / 2,
                   3,
                   T{1} / 3,
                   limits::epsilon() / 2,
                   std::sqrt(normal)};
  for (std::size_t n = r.size(), k = 0; k < n; ++k) r.push_back(-r[k]);
  return r;
}

template <class T>
struct generator {
  std::mt19937_64 random{20240607};
  std::vector<T> corner = corners<T>();

  int below(int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); }
  T significand() {  // of few or of all bits, in [1, 2), either sign
    const int digits = std::numeric_limits<T>::digits - 1;
    const int zeros = below(2) == 0 ? 0 : below(digits);
    const auto field = static_cast<bits_of_float<T>>(random() >> (64 - digits)) >> zeros << zeros;
    const T one = std::bit_cast<T>(std::bit_cast<bits_of_float<T>>(T{1}) | field);
    return below(2) == 0 ? one : -one;
  }
  T draw() {
    const int half = std::numeric_limits<T>::max_exponent / 2;
    const int smallest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
    switch (below(6)) {
      case 0:
        return corner[random() % corner.size()];
      case 1:
        return std::bit_cast<T>(static_cast<bits_of_float<T>>(random()));
      case 2:  // products near the largest and quotients near the smallest value
        return std::ldexp(significand(), half - 8 + below(16));
      case 3:
        return std::ldexp(significand(), -half - 8 + below(16));
      case 4:  // subnormal
        return std::ldexp(significand(), smallest + below(std::numeric_limits<T>::digits + 4));
      default:
        return std::ldexp(significand(), below(61) - 30);
    }
  }
  T nudged(T x) {
    const int way = below(3);
    return way == 0 ? x : std::nextafter(x, way == 1 ? T{-10} : T{10});
  }
  std::array<T, 3> sources(const operation& o) {
    std::array<T, 3> in{draw(), draw(), draw()};
    if (o.sources == 2 && below(4) == 0) in[1] = nudged(below(2) == 0 ? in[0] : -in[0]);
    if (o.sources == 3 && below(3) == 0) in[2] = nudged(-in[0] * in[1]);
    if (o.sources == 1 && below(3) == 0) in[0] = nudged(in[1] * in[1]);
    return in;
  }
};

constexpr std::size_t random_cases = 20480;

template <class T>
void check(const operation& o, const mode& m, bool ftz, bool sat) {
  const bool single = sizeof(T) == 4;
  generator<T> g;
  std::vector<std::array<T, 3>> cases;
  for (const T a : g.corner)
    for (const T b : o.sources > 1 ? g.corner : std::vector<T>{1})
      for (const T c : o.sources > 2 ? g.corner : std::vector<T>{1}) cases.push_back({a, b, c});
  const std::size_t random_end = cases.size() + random_cases;
  while (cases.size() < random_end) cases.push_back(g.sources(o));

  std::string operands;
  for (int k = 0; k < o.sources; ++k) operands += fmt::format(", {}{}", single ? "%r" : "%a", k);
  const std::string name = fmt::format("{}.{}{}{}.{}", o.name, m.name, ftz ? ".ftz" : "",
                                       sat ? ".sat" : "", single ? "f32" : "f64");
  const std::string code = single ? name + " %r9" + operands + "; cvt.u64.u32 %d0, %r9;"
                                  : name + " %d0" + operands + ";";
  int reported = 0;
  for (std::size_t begin = 0; begin < cases.size(); begin += 1024) {
    const std::size_t n = std::min<std::size_t>(1024, cases.size() - begin);
    std::vector<sources> in(n);
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < 3; ++j)
        in[k][j] = std::bit_cast<bits_of_float<T>>(cases[begin + k][j]);
    const std::vector<results> out = ptx_run{}(code, in);
    for (std::size_t k = 0; k < n; ++k) {
      const std::uint64_t want = expected(o, cases[begin + k], m.environment, ftz, sat);
      if (out[k][0] == want || ++reported > 5) continue;
      BOOST_ERROR(fmt::format("{} ({:x}, {:x}, {:x}) gave {:x}, expected {:x}", name, in[k][0],
                              in[k][1], in[k][2], out[k][0], want));
    }
  }
  BOOST_TEST(reported == 0, name);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(directed_rounding)

BOOST_AUTO_TEST_CASE(single_precision) {
  for (const operation& o : operations)
    for (const mode& m : modes)
      for (const bool ftz : {false, true}) {
        check<float>(o, m, ftz, false);
        if (o.saturates) check<float>(o, m, ftz, true);
      }
}

BOOST_AUTO_TEST_CASE(double_precision) {
  for (const operation& o : operations)
    for (const mode& m : modes) check<double>(o, m, false, false);
}

BOOST_AUTO_TEST_CASE(worked_examples) {
  const auto f32 = [](const std::string& op, std::uint32_t a, std::uint32_t b) {
    return evaluate(op + " %r9, %r0, %r1; cvt.u64.u32 %d0, %r9;", {a, b, 0, 0});
  };
  const std::uint32_t one = 0x3f800000;
  BOOST_TEST(f32("sub.rm.f32", one, one) == 0x80000000u);
  BOOST_TEST(f32("sub.rz.f32", one, one) == 0u);
  BOOST_TEST(f32("add.rm.f32", 0, 0) == 0u);
  BOOST_TEST(f32("mul.rz.f32", 0x7f7fffff, 0x7f7fffff) == 0x7f7fffffu);
  BOOST_TEST(f32("mul.rm.f32", 0xff7fffff, 0x7f7fffff) == 0xff800000u);
  BOOST_TEST(f32("mul.rp.f32", 1, 1) == 1u);
  BOOST_TEST(f32("mul.rp.f32", 0x80000001, 1) == 0x80000000u);
  BOOST_TEST(f32("div.rp.f32", one, 0x40400000) == 0x3eaaaaabu);
  BOOST_TEST(f32("div.rm.f32", one, 0x40400000) == 0x3eaaaaaau);
  BOOST_TEST(f32("div.rz.f32", one, 0x80000000) == 0xff800000u);
  BOOST_TEST(evaluate("sqrt.rp.f64 %d0, %a0;", {0x4000000000000000, 0, 0, 0}) ==
             0x3ff6a09e667f3bcdu);
  BOOST_TEST(evaluate("sqrt.rz.f64 %d0, %a0;", {0x4000000000000000, 0, 0, 0}) ==
             0x3ff6a09e667f3bccu);
}

BOOST_AUTO_TEST_CASE(refused) {
  for (const char* code : {"add.rz.f16x2 %r9, %r0, %r1;", "fma.rm.bf16x2 %r9, %r0, %r1, %r2;",
                           "add.rzi.f32 %r9, %r0, %r1;", "min.rz.f32 %r9, %r0, %r1;",
                           "div.rz.sat.f32 %r9, %r0, %r1;", "add.rz.sat.f64 %d0, %a0, %a1;",
                           "mul.rp.ftz.f64 %d0, %a0, %a1;", "fma.rz.relu.f32 %r9, %r0, %r1, %r2;",
                           "fma.f32 %r9, %r0, %r1, %r2;", "div.f64 %d0, %a0, %a1;"})
    BOOST_CHECK_THROW(evaluate(code, {}), spec::device_error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::gpu::emulator
