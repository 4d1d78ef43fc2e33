// exp2, log2, sine and cosine made of IEEE double additions, multiplications and divisions alone,
// so that synthetic data have the same bits whatever the C library. Good to about 1e-15.
#pragma once

namespace kvproof::traces {

struct sine_cosine {
  double sine;
  double cosine;
};

[[nodiscard]] double portable_exp2(double x);           // -1000 <= x <= 1000
[[nodiscard]] double portable_log2(double x);           // x > 0, normal
[[nodiscard]] sine_cosine portable_turn(double turns);  // of the angle 2 pi turns, |turns| < 2^40

}  // namespace kvproof::traces
