#include "reference/attention/online_softmax.hpp"

#include <limits>
#include <utility>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/ex2.hpp"

namespace kvproof::reference {

query_row minus_infinity_row() {
  query_row row;
  row.fill(-std::numeric_limits<float>::infinity());
  return row;
}

void rescale(std::span<query_row> rows, const query_row& factor) {
  for (query_row& row : rows) {
    for (int g = 0; g < query_columns; ++g) row[g] = mul(row[g], factor[g]);
  }
}

softmax_step advance_softmax(std::span<const query_row> scores, int num_queries, query_row& m) {
  softmax_step step = {{}, query_rows(scores.size(), zero_row)};
  step.factor.fill(1.0f);
  for (int g = 0; g < num_queries; ++g) {
    float x = -std::numeric_limits<float>::infinity();
    for (const query_row& s : scores) x = max_ordered(x, s[g]);
    if (x > m[g]) {
      step.factor[g] = ex2_approx(sub(m[g], x));
      m[g] = x;
    }
    for (std::size_t t = 0; t < scores.size(); ++t) {
      step.p[t][g] = ex2_approx(sub(scores[t][g], m[g]));
    }
  }
  return step;
}

void merge(std::optional<partial_result>& running, partial_result next, int num_queries) {
  if (!running) {
    running = std::move(next);
    return;
  }
  for (int g = 0; g < num_queries; ++g) {
    const float n = max_ordered(running->m[g], next.m[g]);
    const float a = ex2_approx(sub(running->m[g], n));
    const float b = ex2_approx(sub(next.m[g], n));
    running->l[g] = fma(running->l[g], a, mul(next.l[g], b));
    for (std::size_t channel = 0; channel < next.o.size(); ++channel) {
      float& o = running->o[channel][g];
      o = fma(o, a, mul(next.o[channel][g], b));
    }
    running->m[g] = n;
  }
}

}  // namespace kvproof::reference
