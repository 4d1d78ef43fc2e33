#include "reference/attention/fixed_point_query.hpp"

#include <cmath>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/half.hpp"

namespace kvproof::reference {

fixed_point_query to_fixed_point(std::span<const half_bits> q) {
  fixed_point_query row = {};
  for (const half_bits x : q) row.qm = max_ordered(row.qm, std::fabs(half_to_float(x)));
  row.r = row.qm == 0 ? 0.0f : div(fixed_point_max, row.qm);
  row.unit = div(row.qm, fixed_point_max);
  for (const half_bits x : q) {
    row.qi.push_back(static_cast<std::int16_t>(rne(mul(half_to_float(x), row.r))));
  }
  return row;
}

std::int32_t integer_dot(std::span<const std::int16_t> codes, std::span<const std::int16_t> qi) {
  std::int32_t sum = 0;
  for (std::size_t channel = 0; channel < codes.size(); ++channel) {
    sum += std::int32_t{codes[channel]} * std::int32_t{qi[channel]};
  }
  return sum;
}

}  // namespace kvproof::reference
