// Lane-wise arithmetic. Built twice, for plain x86-64 and for AVX2 with FMA and F16C; both give the
// same bits, because every rounding is IEEE's and contraction is off.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gpu/device/emulator/directed_rounding.hpp"
#include "gpu/device/emulator/float_formats.hpp"
#include "gpu/device/emulator/warp.hpp"

namespace kvproof::gpu::emulator {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

// A row's element: 32-bit slots hold everything up to 32 bits.
template <class T>
using slot = std::conditional_t<sizeof(T) == 8, u64, u32>;
template <class T>
[[gnu::always_inline]] inline T get(slot<T> s) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<T>(s);
  } else {
    return static_cast<T>(s);
  }
}
template <class T>
[[gnu::always_inline]] inline slot<T> put(T v) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<slot<T>>(v);
  } else {
    return static_cast<slot<T>>(v);
  }
}
template <class T>
inline slot<T>* rows(warp& w, u32 o) {
  return row<slot<T>>(w, o);
}

template <class T, class F>
step unary(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) { return put<T>(F::f(get<T>(a[l]))); });
  return step::next;
}
template <class T, class F>
step binary(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) { return put<T>(F::f(get<T>(a[l]), get<T>(b[l]))); });
  return step::next;
}
template <class T, class F>
step ternary(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  const auto* c = rows<T>(w, i.o[3]);
  for_lanes(rows<T>(w, i.o[0]), m,
            [=](int l) { return put<T>(F::f(get<T>(a[l]), get<T>(b[l]), get<T>(c[l]))); });
  return step::next;
}
// Second source is a 32-bit amount.
template <class T, class F>
step shift(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) { return put<T>(F::f(get<T>(a[l]), b[l])); });
  return step::next;
}
// 32-bit result of one source of another type.
template <class T, class F>
step count(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) { return F::f(get<T>(a[l])); });
  return step::next;
}

template <class T>
using unsigned_of = std::make_unsigned_t<T>;
template <class T>
using double_of = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                       std::conditional_t<std::is_signed_v<T>, s128, u128>>>;

template <class T>
T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}
template <class T>
T high(T a, T b) {
  return static_cast<T>((static_cast<double_of<T>>(a) * static_cast<double_of<T>>(b)) >>
                        (8 * sizeof(T)));
}

struct add_op {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  }
};
struct sub_op {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
  }
};
s32 saturate(s64 v) {
  return static_cast<s32>(
      std::clamp<s64>(v, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
}
struct add_sat_op {
  static s32 f(s32 a, s32 b) { return saturate(s64{a} + b); }
};
struct sub_sat_op {
  static s32 f(s32 a, s32 b) { return saturate(s64{a} - b); }
};
struct mul_lo_op {
  template <class T>
  static T f(T a, T b) {
    return wrap_mul(a, b);
  }
};
struct mul_hi_op {
  template <class T>
  static T f(T a, T b) {
    return high(a, b);
  }
};
struct mad_lo_op {
  template <class T>
  static T f(T a, T b, T c) {
    return add_op::f(wrap_mul(a, b), c);
  }
};
struct mad_hi_op {
  template <class T>
  static T f(T a, T b, T c) {
    return add_op::f(high(a, b), c);
  }
};
struct min_op {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct max_op {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
struct abs_op {
  template <class T>
  static T f(T a) {
    return a < 0 ? sub_op::f(T{0}, a) : a;
  }
};
struct neg_op {
  template <class T>
  static T f(T a) {
    return sub_op::f(T{0}, a);
  }
};
struct and_op {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct or_op {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct xor_op {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct not_op {
  template <class T>
  static T f(T a) {
    return static_cast<T>(~a);
  }
};
struct shl_op {
  template <class T>
  static T f(T a, u32 n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<u64>(a) << n);
  }
};
struct shr_op {
  template <class T>
  static T f(T a, u32 n) {
    const u32 last = 8 * sizeof(T) - 1;
    if (std::is_unsigned_v<T> && n > last) return T{0};
    return static_cast<T>(a >> (n > last ? last : n));
  }
};
struct brev_op {
  template <class T>
  static T f(T a) {
    T r = 0;
    for (std::size_t b = 0; b < 8 * sizeof(T); ++b) r = static_cast<T>(r << 1 | (a >> b & 1));
    return r;
  }
};
struct popc_op {
  template <class T>
  static u32 f(T a) {
    return static_cast<u32>(std::popcount(a));
  }
};
struct clz_op {
  template <class T>
  static u32 f(T a) {
    return static_cast<u32>(std::countl_zero(a));
  }
};
template <bool ShiftAmount>
struct bfind_op {
  template <class T>
  static u32 f(T a) {
    const auto bits = static_cast<unsigned_of<T>>(a < 0 ? ~a : a);
    if (bits == 0) return 0xffffffffu;
    const u32 zeros = static_cast<u32>(std::countl_zero(bits));
    return ShiftAmount ? zeros : static_cast<u32>(8 * sizeof(T)) - 1 - zeros;
  }
};

template <class T>
step divide(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  auto* d = rows<T>(w, i.o[0]);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const T x = get<T>(a[l]);
    const T y = get<T>(b[l]);
    if (y == 0) throw fault{"integer division by zero", l, "guard the divisor"};
    T r;
    if (std::is_signed_v<T> && y == static_cast<T>(-1)) {
      r = i.op == opcode::div ? neg_op::f(x) : T{0};
    } else {
      r = static_cast<T>(i.op == opcode::div ? x / y : x % y);
    }
    d[l] = put<T>(r);
  }
  return step::next;
}

template <class T>
step mul_wide(warp& w, const instruction& i, u32 m) {
  using D = double_of<T>;
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  const auto* c = i.op == opcode::mad_wide ? rows<D>(w, i.o[3]) : nullptr;
  for_lanes(rows<D>(w, i.o[0]), m, [=](int l) {
    const D p = static_cast<D>(get<T>(a[l])) * static_cast<D>(get<T>(b[l]));
    return c == nullptr ? put<D>(p) : put<D>(add_op::f(p, get<D>(c[l])));
  });
  return step::next;
}

template <class T>
step bfe(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) {
    constexpr u32 last = 8 * sizeof(T) - 1;
    const T x = get<T>(a[l]);
    const u32 pos = b[l] & 0xff;
    const u32 len = c[l] & 0xff;
    const bool negative = std::is_signed_v<T> && len != 0 &&
                          (static_cast<u64>(x) >> std::min(pos + len - 1, last) & 1) != 0;
    u64 r = pos > last ? 0 : static_cast<u64>(static_cast<unsigned_of<T>>(x)) >> pos;
    const u32 kept = pos > last ? 0 : std::min(len, last + 1 - pos);
    const u64 keep = kept >= 64 ? ~u64{0} : (u64{1} << kept) - 1;
    r &= keep;
    if (negative) r |= ~keep;
    return put<T>(static_cast<T>(r));
  });
  return step::next;
}

template <class T>
step bfi(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  const u32* n = row<u32>(w, i.o[4]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) {
    const u32 pos = c[l] & 0xff;
    const u32 len = n[l] & 0xff;
    const u64 field = len >= 64 ? ~u64{0} : (u64{1} << len) - 1;
    const u64 keep = pos >= 64 ? 0 : field << pos;
    const u64 insert = pos >= 64 ? 0 : u64{a[l]} << pos;
    return static_cast<slot<T>>((u64{b[l]} & ~keep) | (insert & keep));
  });
  return step::next;
}

u32 permute(u32 a, u32 b, u32 c, int mode) {
  const u64 bytes = u64{b} << 32 | a;
  const auto pick = [&](u32 n) { return static_cast<u32>(bytes >> (8 * (n & 7)) & 0xff); };
  u32 r = 0;
  for (u32 n = 0; n < 4; ++n) {
    const u32 k = c & 3;
    u32 byte = 0;
    switch (mode) {
      case 0: {
        const u32 selector = c >> (4 * n) & 0xf;
        byte = pick(selector);
        if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        break;
      }
      case 1:
        byte = pick(k + n);
        break;  // f4e
      case 2:
        byte = pick((k + 8 - n) & 7);
        break;  // b4e
      case 3:
        byte = pick(k);
        break;  // rc8
      case 4:
        byte = pick(std::max(n, k));
        break;  // ecl
      case 5:
        byte = pick(std::min(n, k));
        break;  // ecr
      default:
        byte = pick((k & 1) * 2 + (n & 1));
        break;  // rc16
    }
    r |= byte << (8 * n);
  }
  return r;
}
step prmt(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  const int mode = i.mode;
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) { return permute(a[l], b[l], c[l], mode); });
  return step::next;
}

step lop3(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  u32 table[8];
  for (u32 k = 0; k < 8; ++k) table[k] = (i.immediate >> k & 1) != 0 ? ~0u : 0u;
  for_lanes(row<u32>(w, i.o[0]), m, [&](int l) {
    const u32 x = a[l];
    const u32 y = b[l];
    const u32 z = c[l];
    return (~x & ~y & ~z & table[0]) | (~x & ~y & z & table[1]) | (~x & y & ~z & table[2]) |
           (~x & y & z & table[3]) | (x & ~y & ~z & table[4]) | (x & ~y & z & table[5]) |
           (x & y & ~z & table[6]) | (x & y & z & table[7]);
  });
  return step::next;
}

// mode 0 clamp, 1 wrap
step funnel(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  const bool left = i.op == opcode::shf_l;
  const bool wraps = i.mode == 1;
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) {
    const u32 n = wraps ? c[l] & 31 : std::min(c[l], 32u);
    const u64 both = u64{b[l]} << 32 | a[l];
    return static_cast<u32>(left ? both << n >> 32 : both >> n);
  });
  return step::next;
}

step dp4a(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  const bool sa = i.t == type::s32;
  const bool sb = i.t2 == type::s32;
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) {
    u32 sum = c[l];
    for (int k = 0; k < 32; k += 8) {
      const u8 x = static_cast<u8>(a[l] >> k);
      const u8 y = static_cast<u8>(b[l] >> k);
      sum += static_cast<u32>((sa ? s32{static_cast<s8>(x)} : s32{x}) *
                              (sb ? s32{static_cast<s8>(y)} : s32{y}));
    }
    return sum;
  });
  return step::next;
}

// add.cc, addc(.cc), sub.cc, subc(.cc); the carry flag is a lane mask. mode 1: writes the flag.
template <class T>
step carry_chain(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  auto* d = rows<T>(w, i.o[0]);
  const bool subtract = i.op == opcode::sub_cc || i.op == opcode::subc;
  const bool uses = i.op == opcode::addc || i.op == opcode::subc;
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u32 in = uses ? w.carry >> l & 1 : 0;
    const u128 x = get<T>(a[l]);
    const u128 y = get<T>(b[l]);
    const u128 r = subtract ? x - y - in : x + y + in;
    d[l] = static_cast<slot<T>>(r);
    if (i.mode == 1) {
      const bool out = (r >> (8 * sizeof(T)) & 1) != 0;
      w.carry = (w.carry & ~(1u << l)) | (out ? 1u << l : 0u);
    }
  }
  return step::next;
}
// mad(.hi/.lo).cc and madc; i.vector 1: high half.
template <class T>
step mad_carry(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  const auto* c = rows<T>(w, i.o[3]);
  auto* d = rows<T>(w, i.o[0]);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u32 in = i.op != opcode::mad_lo_cc ? w.carry >> l & 1 : 0;
    const T p =
        i.vector == 2 ? high(get<T>(a[l]), get<T>(b[l])) : wrap_mul(get<T>(a[l]), get<T>(b[l]));
    const u128 r =
        u128{static_cast<unsigned_of<T>>(p)} + static_cast<unsigned_of<T>>(get<T>(c[l])) + in;
    d[l] = static_cast<slot<T>>(r);
    if (i.mode == 1) {
      const bool out = (r >> (8 * sizeof(T)) & 1) != 0;
      w.carry = (w.carry & ~(1u << l)) | (out ? 1u << l : 0u);
    }
  }
  return step::next;
}

// ---- floating point ----

template <class T>
[[gnu::always_inline]] inline slot<T> canonical(T v) {
  constexpr slot<T> nan =
      static_cast<slot<T>>(canonical_nan(sizeof(T) == 4 ? format_f32 : format_f64));
  const slot<T> bits = std::bit_cast<slot<T>>(v);
  return v != v ? nan : bits;
}
template <class T, bool Ftz>
[[gnu::always_inline]] inline T flush(T v) {
  if constexpr (Ftz) {
    const u32 bits = std::bit_cast<u32>(v);
    return std::bit_cast<T>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  } else {
    return v;
  }
}
template <class T>
T saturate_unit(T v) {
  return v > T{0} ? (v < T{1} ? v : T{1}) : T{0};  // NaN and -0 give +0
}

struct fadd {
  template <class T>
  static T f(T a, T b, T) {
    return a + b;
  }
};
struct fsub {
  template <class T>
  static T f(T a, T b, T) {
    return a - b;
  }
};
struct fmul {
  template <class T>
  static T f(T a, T b, T) {
    return a * b;
  }
};
struct fdiv {
  template <class T>
  static T f(T a, T b, T) {
    return a / b;
  }
};
struct ffma {
  static float f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double f(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct fsqrt {
  static float f(float a, float, float) { return __builtin_sqrtf(a); }
  static double f(double a, double, double) { return __builtin_sqrt(a); }
};
struct frcp {
  template <class T>
  static T f(T a, T, T) {
    return T{1} / a;
  }
};

// Absent sources are the first one again.
template <class T, class F, bool Ftz, bool Sat>
step float_op(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = i.o[2] == no_row ? a : rows<T>(w, i.o[2]);
  const auto* c = i.o[3] == no_row ? a : rows<T>(w, i.o[3]);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) {
    T r = flush<T, Ftz>(F::f(flush<T, Ftz>(get<T>(a[l])), flush<T, Ftz>(get<T>(b[l])),
                             flush<T, Ftz>(get<T>(c[l]))));
    if (Sat) r = saturate_unit(r);
    return canonical(r);
  });
  return step::next;
}
template <class T, class F>
handler pick_float(const instruction& i) {
  if constexpr (sizeof(T) == 4) {
    if (i.ftz) return i.sat ? float_op<T, F, true, true> : float_op<T, F, true, false>;
    return i.sat ? float_op<T, F, false, true> : float_op<T, F, false, false>;
  } else {
    return i.ftz || i.sat ? nullptr : float_op<T, F, false, false>;
  }
}

// Whether the result is one of infinities, NaN or a division by zero: no rounding is concerned.
// Operands that the operation lacks repeat the first.
bool is_special(opcode op, double a, double b, double c) {
  return !std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c) ||
         (op == opcode::sqrt && a < 0) || (op == opcode::rcp && a == 0) ||
         (op == opcode::div && b == 0);
}
template <class T>
T apply_nearest(opcode op, T a, T b, T c) {
  switch (op) {
    case opcode::add:
      return fadd::f(a, b, c);
    case opcode::sub:
      return fsub::f(a, b, c);
    case opcode::mul_lo:
      return fmul::f(a, b, c);
    case opcode::fma:
      return ffma::f(a, b, c);
    case opcode::div:
      return fdiv::f(a, b, c);
    case opcode::rcp:
      return frcp::f(a, b, c);
    default:
      return fsqrt::f(a, b, c);
  }
}
// .rz, .rm and .rp
template <class T>
step directed_op(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = i.o[2] == no_row ? a : rows<T>(w, i.o[2]);
  const auto* c = i.o[3] == no_row ? a : rows<T>(w, i.o[3]);
  const auto flushed = [ftz = i.ftz](T v) {
    if constexpr (sizeof(T) == 4) return ftz ? flush<T, true>(v) : v;
    return v;
  };
  auto* d = rows<T>(w, i.o[0]);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const T x = flushed(get<T>(a[l]));
    const T y = flushed(get<T>(b[l]));
    const T z = flushed(get<T>(c[l]));
    T r = is_special(i.op, x, y, z) ? apply_nearest(i.op, x, y, z)
                                    : get<T>(static_cast<slot<T>>(encode(
                                          exact_result(i.op, x, y, z, i.round),
                                          sizeof(T) == 4 ? format_f32 : format_f64, i.round)));
    r = flushed(r);
    if (i.sat) r = saturate_unit(r);
    d[l] = canonical(r);
  }
  return step::next;
}
template <class T>
handler select_directed(const instruction& i) {
  if (i.mode == 1 || i.nan) return nullptr;  // .relu and .NaN
  switch (i.op) {
    case opcode::add:
    case opcode::sub:
    case opcode::mul_lo:
    case opcode::fma:
      return sizeof(T) == 8 && i.sat ? nullptr : directed_op<T>;
    case opcode::div:
    case opcode::sqrt:
    case opcode::rcp:
      return i.sat ? nullptr : directed_op<T>;
    default:
      return nullptr;
  }
}

// -0 < +0; one NaN loses unless .NaN.
template <class T, bool Max, bool Ftz>
step float_minmax(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  const auto* b = rows<T>(w, i.o[2]);
  const bool nan = i.nan;
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) {
    const T x = flush<T, Ftz>(get<T>(a[l]));
    const T y = flush<T, Ftz>(get<T>(b[l]));
    const slot<T> xb = std::bit_cast<slot<T>>(x);
    const slot<T> yb = std::bit_cast<slot<T>>(y);
    const bool first = Max ? x > y : x < y;
    slot<T> r = first ? xb : yb;
    r = x == y ? (Max ? xb & yb : xb | yb) : r;
    r = y != y ? (nan ? canonical(y) : canonical(x)) : r;
    r = x != x ? (nan ? canonical(x) : canonical(y)) : r;
    return r;
  });
  return step::next;
}

// neg and abs touch the sign alone; NaN becomes canonical.
template <class T, bool Neg, bool Ftz>
step float_sign(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<T>(w, i.o[1]);
  constexpr slot<T> sign = slot<T>{1} << (8 * sizeof(T) - 1);
  for_lanes(rows<T>(w, i.o[0]), m, [=](int l) {
    const T x = flush<T, Ftz>(get<T>(a[l]));
    const slot<T> bits = std::bit_cast<slot<T>>(x);
    return x != x ? canonical(x)
           : Neg  ? static_cast<slot<T>>(bits ^ sign)
                  : static_cast<slot<T>>(bits & ~sign);
  });
  return step::next;
}

step ex2(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) { return ex2_approx_ftz(a[l]); });
  return step::next;
}

// 16-bit formats. One rounding each: products of two are exact in float (f16) or double (bf16).
struct half_format {
  static constexpr u16 nan = 0x7fff;
  static constexpr u16 inf = 0x7c00;
  static double value(u16 h) { return double{f16_to_f32(h)}; }
  static u16 round(double v) { return static_cast<u16>(encode(v, format_f16, rounding::rn)); }
  // float results whose rounding to 11 bits is innocuous
  static u16 add(u16 a, u16 b) { return f32_to_f16(f16_to_f32(a) + f16_to_f32(b)); }
  static u16 mul(u16 a, u16 b) { return f32_to_f16(f16_to_f32(a) * f16_to_f32(b)); }
};
struct bf16_format {
  static constexpr u16 nan = 0x7fff;
  static constexpr u16 inf = 0x7f80;
  static double value(u16 h) { return double{bf16_to_f32(h)}; }
  static u16 round(double v) { return f64_to_bf16(v); }
  static u16 add(u16 a, u16 b) { return round(fma_to_odd(value(a), 1.0, value(b))); }
  static u16 mul(u16 a, u16 b) { return round(value(a) * value(b)); }
};
template <class F>
u16 half_minmax(u16 a, u16 b, bool max, bool propagate) {
  const bool na = (a & 0x7fff) > F::inf;
  const bool nb = (b & 0x7fff) > F::inf;
  if (na || nb) return (na && nb) || propagate ? F::nan : na ? b : a;
  const auto key = [](u16 h) {
    return (h & 0x8000) != 0 ? -static_cast<int>(h & 0x7fff) - 1 : static_cast<int>(h);
  };
  return (key(a) > key(b)) == max ? a : b;
}
template <class F>
u16 half_apply(const instruction& i, u16 a, u16 b, u16 c) {
  u16 r = 0;
  switch (i.op) {
    case opcode::add:
      r = F::add(a, b);
      break;
    case opcode::sub:
      r = F::add(a, (b & 0x7fff) > F::inf ? b : static_cast<u16>(b ^ 0x8000));
      break;
    case opcode::mul_lo:
      r = F::mul(a, b);
      break;
    case opcode::fma:
      r = F::round(fma_to_odd(F::value(a), F::value(b), F::value(c)));
      break;
    case opcode::min:
      return half_minmax<F>(a, b, false, i.nan);
    case opcode::max:
      return half_minmax<F>(a, b, true, i.nan);
    case opcode::neg:
      return (a & 0x7fff) > F::inf ? F::nan : static_cast<u16>(a ^ 0x8000);
    default:
      return (a & 0x7fff) > F::inf ? F::nan : static_cast<u16>(a & 0x7fff);  // abs
  }
  if (i.sat) {
    const double v = F::value(r);
    if (!(v > 0)) return 0;
    if (v > 1) return F::round(1.0);
  }
  if (i.mode == 1 && (r & 0x8000) != 0) return 0;  // .relu
  return r;
}
template <class F, bool Pair>
step half_op(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = i.o[2] == no_row ? a : row<u32>(w, i.o[2]);
  const u32* c = i.o[3] == no_row ? a : row<u32>(w, i.o[3]);
  const auto low = [](u32 x) { return static_cast<u16>(x); };
  const auto upper = [](u32 x) { return static_cast<u16>(x >> 16); };
  u32* d = row<u32>(w, i.o[0]);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    u32 r = half_apply<F>(i, low(a[l]), low(b[l]), low(c[l]));
    if (Pair) r |= u32{half_apply<F>(i, upper(a[l]), upper(b[l]), upper(c[l]))} << 16;
    d[l] = r;
  }
  return step::next;
}
#ifdef __F16C__
// mul.rn.f16x2 of a whole warp: the dequantisation of packed codes is made of it.
step half_mul_pair(warp& w, const instruction& i, u32 m) {
  if (m != 0xffffffffu) return half_op<half_format, true>(w, i, m);
  const auto* a = reinterpret_cast<const __m128i*>(row<u32>(w, i.o[1]));
  const auto* b = reinterpret_cast<const __m128i*>(row<u32>(w, i.o[2]));
  auto* d = reinterpret_cast<__m128i*>(row<u32>(w, i.o[0]));
  for (int k = 0; k < 8; ++k) {
    const __m256 p = _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(a + k)),
                                   _mm256_cvtph_ps(_mm_loadu_si128(b + k)));
    const __m128i ordered = _mm256_cvtps_ph(p, _MM_FROUND_TO_NEAREST_INT);
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(p, p, _CMP_UNORD_Q));
    const __m128i nan =
        _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extracti128_si256(unordered, 1));
    _mm_storeu_si128(d + k, _mm_blendv_epi8(ordered, _mm_set1_epi16(0x7fff), nan));
  }
  return step::next;
}
#endif

// ---- comparison and selection ----

template <class T>
bool compare(comparison c, T a, T b) {
  const bool unordered = a != a || b != b;
  switch (c) {
    case comparison::eq:
      return a == b;
    case comparison::ne:
      return !unordered && a != b;
    case comparison::lt:
      return a < b;
    case comparison::le:
      return a <= b;
    case comparison::gt:
      return a > b;
    case comparison::ge:
      return a >= b;
    case comparison::equ:
      return unordered || a == b;
    case comparison::neu:
      return a != b;
    case comparison::ltu:
      return !(a >= b);
    case comparison::leu:
      return !(a > b);
    case comparison::gtu:
      return !(a <= b);
    case comparison::geu:
      return !(a < b);
    case comparison::num:
      return !unordered;
    default:
      return unordered;
  }
}

template <class T, class Load>
u32 compare_mask(comparison c, Load load_a, Load load_b) {
  u32 bits = 0;
  const auto loop = [&](auto test) {
    for (int l = 0; l < 32; ++l) bits |= (test(load_a(l), load_b(l)) ? 1u : 0u) << l;
  };
  switch (c) {
    case comparison::eq:
      loop([](T a, T b) { return a == b; });
      break;
    case comparison::lt:
      loop([](T a, T b) { return a < b; });
      break;
    case comparison::gt:
      loop([](T a, T b) { return a > b; });
      break;
    default:
      loop([c](T a, T b) { return compare(c, a, b); });
      break;
  }
  return bits;
}

// Lane mask of the comparison, combined with the predicate o[4] by mode (0 none, 1 and, 2 or, 3
// xor).
u32 combine(warp& w, const instruction& i, u32 bits, bool negated) {
  u32 p = i.o[4] == no_row ? 0 : w.predicates[i.o[4]];
  if (negated) p = ~p;
  return i.mode == 0 ? bits : i.mode == 1 ? bits & p : i.mode == 2 ? bits | p : bits ^ p;
}
void write_predicate(warp& w, u32 index, u32 mask, u32 bits) {
  if (index != no_row) w.predicates[index] = (w.predicates[index] & ~mask) | (bits & mask);
}

template <class T>
struct plain_source {
  const slot<T>* a;
  bool ftz;
  T operator()(int l) const {
    if constexpr (std::is_same_v<T, float>) {
      return ftz ? flush<float, true>(get<T>(a[l])) : get<T>(a[l]);
    } else {
      return get<T>(a[l]);
    }
  }
};
template <class F>
struct half_source {
  const u32* a;
  double operator()(int l) const { return F::value(static_cast<u16>(a[l])); }
};

// setp d|e, and set (destination row of all ones or 1.0)
step finish_comparison(warp& w, const instruction& i, u32 m, u32 bits) {
  if (i.op == opcode::setp) {
    write_predicate(w, i.o[0], m, combine(w, i, bits, i.sat));
    if (i.o[1] != no_row) write_predicate(w, i.o[1], m, combine(w, i, ~bits, i.sat));
    return step::next;
  }
  bits = combine(w, i, bits, i.sat);
  const u32 on = i.t == type::f32 ? 0x3f800000u : 0xffffffffu;
  for_lanes(row<u32>(w, i.o[0]), m, [=](int l) { return (bits >> l & 1) != 0 ? on : 0u; });
  return step::next;
}
template <class T>
step compare_plain(warp& w, const instruction& i, u32 m) {
  const plain_source<T> a{rows<T>(w, i.o[2]), i.ftz};
  const plain_source<T> b{rows<T>(w, i.o[3]), i.ftz};
  return finish_comparison(w, i, m, compare_mask<T>(i.compare, a, b));
}
template <class F>
step compare_half(warp& w, const instruction& i, u32 m) {
  const half_source<F> a{row<u32>(w, i.o[2])};
  const half_source<F> b{row<u32>(w, i.o[3])};
  return finish_comparison(w, i, m, compare_mask<double>(i.compare, a, b));
}

template <class T>
step selp(warp& w, const instruction& i, u32 m) {
  const T* a = row<T>(w, i.o[1]);
  const T* b = row<T>(w, i.o[2]);
  const u32 p = i.sat ? ~w.predicates[i.o[3]] : w.predicates[i.o[3]];
  for_lanes(row<T>(w, i.o[0]), m, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
  return step::next;
}
template <class T>
step slct(warp& w, const instruction& i, u32 m) {
  const T* a = row<T>(w, i.o[1]);
  const T* b = row<T>(w, i.o[2]);
  const u32* c = row<u32>(w, i.o[3]);
  const bool is_float = i.t2 == type::f32;
  for_lanes(row<T>(w, i.o[0]), m, [=](int l) {
    const bool first = is_float ? std::bit_cast<float>(c[l]) >= 0.0f : static_cast<s32>(c[l]) >= 0;
    return first ? a[l] : b[l];
  });
  return step::next;
}
template <class T>
step mov(warp& w, const instruction& i, u32 m) {
  const T* a = row<T>(w, i.o[1]);
  for_lanes(row<T>(w, i.o[0]), m, [=](int l) { return a[l]; });
  return step::next;
}

// mov d, {a, b, ..}: o[1..n] parts of `mode` bits; t gives the destination.
step pack(warp& w, const instruction& i, u32 m) {
  const u64 part_mask = i.mode == 32 ? 0xffffffffu : (u64{1} << i.mode) - 1;
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    u64 r = 0;
    for (u32 k = 0; k < i.vector; ++k)
      r |= (row<u32>(w, i.o[1 + k])[l] & part_mask) << (k * i.mode);
    if (i.wide) {
      row<u64>(w, i.o[0])[l] = r;
    } else {
      row<u32>(w, i.o[0])[l] = static_cast<u32>(r);
    }
  }
  return step::next;
}
step unpack(warp& w, const instruction& i, u32 m) {
  const u64 part_mask = i.mode == 32 ? 0xffffffffu : (u64{1} << i.mode) - 1;
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 v = i.wide ? row<u64>(w, i.o[0])[l] : row<u32>(w, i.o[0])[l];
    for (u32 k = 0; k < i.vector; ++k)
      if (i.o[1 + k] != no_row)
        row<u32>(w, i.o[1 + k])[l] = static_cast<u32>(v >> (k * i.mode) & part_mask);
  }
  return step::next;
}

step predicate_logic(warp& w, const instruction& i, u32 m) {
  const u32 a = i.o[1] == no_row ? 0 : w.predicates[i.o[1]] ^ ((i.vector & 2) != 0 ? ~0u : 0u);
  const u32 b = i.o[2] == no_row ? 0 : w.predicates[i.o[2]] ^ ((i.vector & 4) != 0 ? ~0u : 0u);
  u32 r = a;
  if (i.op == opcode::pred_and) r = a & b;
  if (i.op == opcode::pred_or) r = a | b;
  if (i.op == opcode::pred_xor) r = a ^ b;
  if (i.op == opcode::pred_not) r = ~a;
  if (i.op == opcode::pred_mov && i.o[1] == no_row) r = i.immediate != 0 ? ~0u : 0u;
  write_predicate(w, i.o[0], m, r);
  return step::next;
}

step copysign(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  for_lanes(row<u32>(w, i.o[0]), m,
            [=](int l) { return (a[l] & 0x80000000u) | (b[l] & 0x7fffffffu); });
  return step::next;
}

// testp: mode 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal
step testp(warp& w, const instruction& i, u32 m) {
  u32 bits = 0;
  for (int l = 0; l < 32; ++l) {
    const double v = i.t == type::f32 ? double{std::bit_cast<float>(row<u32>(w, i.o[1])[l])}
                                      : std::bit_cast<double>(row<u64>(w, i.o[1])[l]);
    const double tiny = i.t == type::f32 ? 0x1p-126 : 0x1p-1022;
    const bool normal = std::isfinite(v) && std::fabs(v) >= tiny;
    const bool results[] = {std::isfinite(v), std::isinf(v), v == v,
                            v != v,           normal,        std::isfinite(v) && v != 0 && !normal};
    bits |= (results[i.mode] ? 1u : 0u) << l;
  }
  write_predicate(w, i.o[0], m, bits);
  return step::next;
}

// ---- conversion ----

bool is_float(type t) {
  return t == type::f16 || t == type::bf16 || t == type::f32 || t == type::f64;
}
bool is_signed(type t) {
  return t == type::s8 || t == type::s16 || t == type::s32 || t == type::s64;
}

float_format format_of(type t) {
  return t == type::f16    ? format_f16
         : t == type::bf16 ? format_bf16
         : t == type::f32  ? format_f32
                           : format_f64;
}
double float_value(type t, u64 bits) {
  switch (t) {
    case type::f16:
      return double{f16_to_f32(static_cast<u16>(bits))};
    case type::bf16:
      return double{bf16_to_f32(static_cast<u16>(bits))};
    case type::f32:
      return double{std::bit_cast<float>(static_cast<u32>(bits))};
    default:
      return std::bit_cast<double>(bits);
  }
}
double round_to_integer(double v, rounding r) {
  switch (r) {
    case rounding::rni:
      return std::nearbyint(v);
    case rounding::rzi:
      return std::trunc(v);
    case rounding::rmi:
      return std::floor(v);
    case rounding::rpi:
      return std::ceil(v);
    default:
      return v;
  }
}
u64 float_to_integer(double v, type from, type to) {
  const int bits = bits_of(to);
  const u64 ones = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  if (v != v) return from == type::f64 ? u64{1} << (bits - 1) : 0;
  if (is_signed(to)) {
    const double limit = std::ldexp(1.0, bits - 1);
    if (v >= limit) return ones >> 1;
    if (v < -limit) return ~(ones >> 1);
    return static_cast<u64>(static_cast<s64>(v));
  }
  if (v <= 0) return 0;
  if (v >= std::ldexp(1.0, bits)) return ones;
  return static_cast<u64>(v);
}
u64 extend(u64 bits, type t) {
  switch (t) {
    case type::s8:
      return static_cast<u64>(s64{static_cast<s8>(bits)});
    case type::s16:
      return static_cast<u64>(s64{static_cast<s16>(bits)});
    case type::s32:
      return static_cast<u64>(s64{static_cast<s32>(bits)});
    case type::u8:
    case type::b8:
      return bits & 0xff;
    case type::u16:
    case type::b16:
      return bits & 0xffff;
    case type::u32:
    case type::b32:
      return bits & 0xffffffffu;
    default:
      return bits;
  }
}
u64 saturate_integer(u64 v, bool from_signed, type to) {
  const int bits = bits_of(to);
  if (is_signed(to)) {
    const s64 top = bits == 64 ? std::numeric_limits<s64>::max() : (s64{1} << (bits - 1)) - 1;
    if (!from_signed && v > static_cast<u64>(top)) return static_cast<u64>(top);
    return static_cast<u64>(std::clamp(static_cast<s64>(v), -top - 1, top));
  }
  if (from_signed && static_cast<s64>(v) < 0) return 0;
  return bits == 64 ? v : std::min(v, (u64{1} << bits) - 1);
}

u64 convert(const instruction& i, u64 bits) {
  const type to = i.t;
  const type from = i.t2;
  if (is_float(from)) {
    double v = float_value(from, bits);
    if (i.ftz && from == type::f32) v = double{flush<float, true>(static_cast<float>(v))};
    const bool integral = i.round >= rounding::rni;
    if (integral) v = round_to_integer(v, i.round);
    if (!is_float(to)) return float_to_integer(v, from, to);
    if (i.sat) v = saturate_unit(v);
    if (i.mode == 1 && v < 0) v = 0;  // .relu
    u64 r = encode(v, format_of(to), integral ? rounding::rn : i.round);
    if (i.ftz && to == type::f32 && (r & 0x7f800000u) == 0) r &= 0x80000000u;
    return r;
  }
  const u64 v = extend(bits, from);
  if (!is_float(to)) return extend(i.sat ? saturate_integer(v, is_signed(from), to) : v, to);
  const bool negative = is_signed(from) && static_cast<s64>(v) < 0;
  const u64 magnitude = negative ? ~v + 1 : v;
  return magnitude == 0 ? 0 : encode(negative, magnitude, 0, format_of(to), i.round);
}
step cvt(warp& w, const instruction& i, u32 m) {
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const u64 r = convert(i, i.wide ? row<u64>(w, i.o[1])[l] : row<u32>(w, i.o[1])[l]);
    if (i.wide_data) {
      row<u64>(w, i.o[0])[l] = r;
    } else {
      row<u32>(w, i.o[0])[l] = static_cast<u32>(r);
    }
  }
  return step::next;
}
template <class D, class S>
step cvt_integer(warp& w, const instruction& i, u32 m) {
  const auto* a = rows<S>(w, i.o[1]);
  for_lanes(rows<D>(w, i.o[0]), m, [=](int l) { return put<D>(static_cast<D>(get<S>(a[l]))); });
  return step::next;
}
step cvt_f32_f16(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  for_lanes(row<u32>(w, i.o[0]), m,
            [=](int l) { return canonical(f16_to_f32(static_cast<u16>(a[l]))); });
  return step::next;
}
step cvt_f32_s32(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  for_lanes(row<u32>(w, i.o[0]), m,
            [=](int l) { return std::bit_cast<u32>(static_cast<float>(static_cast<s32>(a[l]))); });
  return step::next;
}
// cvt.f16x2.f32 d, a, b: a is the upper half.
step cvt_pack(warp& w, const instruction& i, u32 m) {
  const u32* a = row<u32>(w, i.o[1]);
  const u32* b = row<u32>(w, i.o[2]);
  instruction one = i;
  one.t = i.t == type::f16x2 ? type::f16 : type::bf16;
  const bool fast =
      i.t == type::f16x2 && i.round == rounding::rn && i.mode == 0 && !i.sat && !i.ftz;
  u32* d = row<u32>(w, i.o[0]);
  for (; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    d[l] = fast ? u32{f32_to_f16(std::bit_cast<float>(a[l]))} << 16 |
                      f32_to_f16(std::bit_cast<float>(b[l]))
                : static_cast<u32>(convert(one, a[l]) << 16 | convert(one, b[l]));
  }
  return step::next;
}

handler select_cvt(const instruction& i) {
  using t = type;
  if (i.op == opcode::cvt_pack) return cvt_pack;
  if (!i.sat && !i.ftz) {
    if (i.t == t::u64 && i.t2 == t::u32 && !i.wide && i.wide_data) return cvt_integer<u64, u32>;
    if (i.t == t::s64 && i.t2 == t::s32 && !i.wide && i.wide_data) return cvt_integer<s64, s32>;
    if (i.t == t::u32 && i.t2 == t::u64 && !i.wide_data) return cvt_integer<u32, u64>;
    if (i.t == t::u16 && i.t2 == t::u32 && !i.wide && !i.wide_data) return cvt_integer<u16, u32>;
    if (i.t == t::u32 && i.t2 == t::u16 && !i.wide && !i.wide_data) return cvt_integer<u32, u16>;
    if (i.t == t::f32 && i.t2 == t::f16 && i.mode == 0) return cvt_f32_f16;
    if (i.t == t::f32 && i.t2 == t::s32 && i.round == rounding::rn) return cvt_f32_s32;
  }
  return cvt;
}

// ---- tables ----

#define KVPROOF_INTEGERS(F, OP) \
  switch (i.t) {                \
    case type::u16:             \
      return F<u16, OP>;        \
    case type::s16:             \
      return F<s16, OP>;        \
    case type::u32:             \
      return F<u32, OP>;        \
    case type::s32:             \
      return F<s32, OP>;        \
    case type::u64:             \
      return F<u64, OP>;        \
    case type::s64:             \
      return F<s64, OP>;        \
    default:                    \
      return nullptr;           \
  }
#define KVPROOF_BITS(F, OP) \
  switch (bits_of(i.t)) {   \
    case 16:                \
      return F<u16, OP>;    \
    case 32:                \
      return F<u32, OP>;    \
    case 64:                \
      return F<u64, OP>;    \
    default:                \
      return nullptr;       \
  }
#define KVPROOF_WORDS(F) \
  switch (i.t) {         \
    case type::u32:      \
    case type::b32:      \
      return F<u32>;     \
    case type::s32:      \
      return F<s32>;     \
    case type::u64:      \
    case type::b64:      \
      return F<u64>;     \
    case type::s64:      \
      return F<s64>;     \
    default:             \
      return nullptr;    \
  }

template <class T>
handler select_float_type(const instruction& i) {
  constexpr bool single = sizeof(T) == 4;
  if (!single && i.ftz) return nullptr;
  const bool ftz = single && i.ftz;
  if (is_directed(i.round)) return select_directed<T>(i);
  switch (i.op) {
    case opcode::add:
      return pick_float<T, fadd>(i);
    case opcode::sub:
      return pick_float<T, fsub>(i);
    case opcode::mul_lo:
      return pick_float<T, fmul>(i);
    case opcode::fma:
      return pick_float<T, ffma>(i);
    case opcode::div:
      return pick_float<T, fdiv>(i);
    case opcode::sqrt:
      return pick_float<T, fsqrt>(i);
    case opcode::rcp:
      return pick_float<T, frcp>(i);
    case opcode::min:
      if constexpr (single)
        if (ftz) return float_minmax<T, false, true>;
      return float_minmax<T, false, false>;
    case opcode::max:
      if constexpr (single)
        if (ftz) return float_minmax<T, true, true>;
      return float_minmax<T, true, false>;
    case opcode::neg:
      if constexpr (single)
        if (ftz) return float_sign<T, true, true>;
      return float_sign<T, true, false>;
    case opcode::abs:
      if constexpr (single)
        if (ftz) return float_sign<T, false, true>;
      return float_sign<T, false, false>;
    case opcode::ex2:
      return single && i.ftz ? ex2 : nullptr;
    case opcode::copysign:
      return single ? copysign : nullptr;
    default:
      return nullptr;
  }
}
template <class F>
handler select_half(const instruction& i, bool pair) {
  switch (i.op) {
    case opcode::add:
    case opcode::sub:
    case opcode::mul_lo:
    case opcode::fma:
    case opcode::min:
    case opcode::max:
    case opcode::neg:
    case opcode::abs:
      if (i.ftz) return nullptr;
#ifdef __F16C__
      if (std::is_same_v<F, half_format> && pair && i.op == opcode::mul_lo && !i.sat)
        return half_mul_pair;
#endif
      return pair ? half_op<F, true> : half_op<F, false>;
    default:
      return nullptr;
  }
}

handler select_integer(const instruction& i) {
  switch (i.op) {
    case opcode::add:
      if (i.sat) return i.t == type::s32 ? binary<s32, add_sat_op> : nullptr;
      KVPROOF_BITS(binary, add_op)
    case opcode::sub:
      if (i.sat) return i.t == type::s32 ? binary<s32, sub_sat_op> : nullptr;
      KVPROOF_BITS(binary, sub_op)
    case opcode::mul_lo:
      KVPROOF_BITS(binary, mul_lo_op)
    case opcode::mul_hi:
      KVPROOF_INTEGERS(binary, mul_hi_op)
    case opcode::mad_lo:
      KVPROOF_BITS(ternary, mad_lo_op)
    case opcode::mad_hi:
      KVPROOF_INTEGERS(ternary, mad_hi_op)
    case opcode::mul_wide:
    case opcode::mad_wide:
      switch (i.t) {
        case type::u16:
          return mul_wide<u16>;
        case type::s16:
          return mul_wide<s16>;
        case type::u32:
          return mul_wide<u32>;
        case type::s32:
          return mul_wide<s32>;
        default:
          return nullptr;
      }
    case opcode::min:
      KVPROOF_INTEGERS(binary, min_op)
    case opcode::max:
      KVPROOF_INTEGERS(binary, max_op)
    case opcode::abs:
      switch (i.t) {
        case type::s16:
          return unary<s16, abs_op>;
        case type::s32:
          return unary<s32, abs_op>;
        case type::s64:
          return unary<s64, abs_op>;
        default:
          return nullptr;
      }
    case opcode::neg:
      KVPROOF_BITS(unary, neg_op)
    case opcode::div:
    case opcode::rem:
      switch (i.t) {
        case type::u16:
          return divide<u16>;
        case type::s16:
          return divide<s16>;
        case type::u32:
          return divide<u32>;
        case type::s32:
          return divide<s32>;
        case type::u64:
          return divide<u64>;
        case type::s64:
          return divide<s64>;
        default:
          return nullptr;
      }
    case opcode::band:
      KVPROOF_BITS(binary, and_op)
    case opcode::bor:
      KVPROOF_BITS(binary, or_op)
    case opcode::bxor:
      KVPROOF_BITS(binary, xor_op)
    case opcode::bnot:
      KVPROOF_BITS(unary, not_op)
    case opcode::shl:
      KVPROOF_BITS(shift, shl_op)
    case opcode::shr:
      if (is_signed(i.t)) {
        KVPROOF_INTEGERS(shift, shr_op)
      }
      KVPROOF_BITS(shift, shr_op)
    case opcode::bfe:
      KVPROOF_WORDS(bfe)
    case opcode::bfi:
      return bits_of(i.t) == 64 ? bfi<u64> : bfi<u32>;
    case opcode::brev:
      KVPROOF_BITS(unary, brev_op)
    case opcode::popc:
      return bits_of(i.t) == 64 ? count<u64, popc_op> : count<u32, popc_op>;
    case opcode::clz:
      return bits_of(i.t) == 64 ? count<u64, clz_op> : count<u32, clz_op>;
    case opcode::bfind:
      if (i.mode == 1) {
        KVPROOF_INTEGERS(count, bfind_op<true>)
      }
      KVPROOF_INTEGERS(count, bfind_op<false>)
    case opcode::prmt:
      return prmt;
    case opcode::lop3:
      return lop3;
    case opcode::shf_l:
    case opcode::shf_r:
      return funnel;
    case opcode::dp4a:
      return dp4a;
    case opcode::add_cc:
    case opcode::addc:
    case opcode::sub_cc:
    case opcode::subc:
      return bits_of(i.t) == 64 ? carry_chain<u64> : carry_chain<u32>;
    case opcode::mad_lo_cc:
    case opcode::madc_lo:
      KVPROOF_WORDS(mad_carry)
    default:
      return nullptr;
  }
}

handler select_compare(const instruction& i) {
  switch (i.t2) {
    case type::u16:
    case type::b16:
      return compare_plain<u16>;
    case type::s16:
      return compare_plain<s16>;
    case type::u32:
    case type::b32:
      return compare_plain<u32>;
    case type::s32:
      return compare_plain<s32>;
    case type::u64:
    case type::b64:
      return compare_plain<u64>;
    case type::s64:
      return compare_plain<s64>;
    case type::f32:
      return compare_plain<float>;
    case type::f64:
      return compare_plain<double>;
    case type::f16:
      return compare_half<half_format>;
    case type::bf16:
      return compare_half<bf16_format>;
    default:
      return nullptr;
  }
}

handler select_data(const instruction& i) {
  const bool wide = bits_of(i.t) == 64;
  switch (i.op) {
    case opcode::setp:
    case opcode::set:
      return select_compare(i);
    case opcode::selp:
      return wide ? selp<u64> : selp<u32>;
    case opcode::slct:
      return wide ? slct<u64> : slct<u32>;
    case opcode::mov:
      return wide ? mov<u64> : mov<u32>;
    case opcode::pack:
      return pack;
    case opcode::unpack:
      return unpack;
    case opcode::pred_and:
    case opcode::pred_or:
    case opcode::pred_xor:
    case opcode::pred_not:
    case opcode::pred_mov:
      return predicate_logic;
    case opcode::cvt:
    case opcode::cvt_pack:
      return select_cvt(i);
    case opcode::testp:
      return testp;
    default:
      return nullptr;
  }
}

}  // namespace

#ifdef KVPROOF_EMULATOR_AVX2
handler select_arithmetic_avx2(const instruction& i) {
#else
handler select_arithmetic_baseline(const instruction& i) {
#endif
  if (const handler h = select_data(i)) return h;
  switch (i.t) {
    case type::f32:
      return select_float_type<float>(i);
    case type::f64:
      return select_float_type<double>(i);
    case type::f16:
      return select_half<half_format>(i, false);
    case type::f16x2:
      return select_half<half_format>(i, true);
    case type::bf16:
      return select_half<bf16_format>(i, false);
    case type::bf16x2:
      return select_half<bf16_format>(i, true);
    default:
      return select_integer(i);
  }
}

}  // namespace kvproof::gpu::emulator
