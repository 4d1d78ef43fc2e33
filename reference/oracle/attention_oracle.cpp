#include "reference/oracle/attention_oracle.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::reference {
namespace {

using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

enum class rounding : std::uint8_t { none, to_half };

double round_to_half(double x) {
  // Twice rounded (to fp32, then to fp16): off by at most 2^-24 of an fp16 step from rounding once.
  return half_to_float(float_to_half(static_cast<float>(x)));
}

matrix to_matrix(std::span<const half_bits> x, int columns) {
  matrix result(std::ssize(x) / columns, columns);
  std::transform(x.begin(), x.end(), result.data(), half_to_float);
  return result;
}

matrix stack(const std::vector<double>& high, const std::vector<double>& low,
             const matrix& recent) {
  const auto rows = [&](const std::vector<double>& x) {
    return Eigen::Map<const matrix>(x.data(), std::ssize(x) / recent.cols(), recent.cols());
  };
  const Eigen::Index num_high = rows(high).rows(), num_low = rows(low).rows();
  matrix result(num_high + num_low + recent.rows(), recent.cols());
  result.topRows(num_high) = rows(high);
  result.middleRows(num_high, num_low) = rows(low);
  result.bottomRows(recent.rows()) = recent;
  return result;
}

struct cache_values {
  matrix k, v;  // [tokens][head_dim]
};

cache_values stored_values(const decode_input& input) {
  const dequantized_tokens quantized = dequantize_tokens(
      spec::format_of(input.format), input.head_dim, input.num_quantized, input.pages);
  const dequantized_tokens low = dequantize_tokens(spec::format_of(spec::format_id::k4v2),
                                                   input.head_dim, input.num_low, input.low_pages);
  return {stack(quantized.k, low.k, to_matrix(input.recent_k, input.head_dim)),
          stack(quantized.v, low.v, to_matrix(input.recent_v, input.head_dim))};
}

oracle_output attend(const matrix& q, const cache_values& cache, float softmax_scale,
                     rounding probabilities) {
  const Eigen::Index num_queries = q.rows();
  const Eigen::Index num_tokens = cache.k.rows();
  const double c = double{softmax_scale} * std::numbers::log2e;
  const matrix s = c * (cache.k * q.transpose());

  oracle_output output = {
      std::vector<double>(q.size(), 0.0),
      std::vector<double>(num_queries, -std::numeric_limits<double>::infinity()),
      std::vector<double>(s.data(), s.data() + s.size())};
  if (num_tokens == 0) return output;

  for (Eigen::Index g = 0; g < num_queries; ++g) {
    const double m = s.col(g).maxCoeff<Eigen::PropagateNaN>();
    Eigen::VectorXd p = (s.col(g).array() - m).unaryExpr([](double x) { return std::exp2(x); });
    const double l = p.sum();
    if (probabilities == rounding::to_half) p = p.unaryExpr(&round_to_half).eval();
    const Eigen::VectorXd o = cache.v.transpose() * p / l;
    std::copy(o.begin(), o.end(), output.out.begin() + g * q.cols());
    output.log_sum_exp[g] = m + std::log2(l);
  }
  return output;
}

template <typename Value>
double relative_error_of(std::span<const Value> value, std::span<const double> oracle) {
  if (value.size() != oracle.size()) {
    throw spec::contract_error(
        fmt::format("relative_error: {} values against {} of the oracle; pass equal shapes",
                    value.size(), oracle.size()));
  }
  const Eigen::Map<const Eigen::VectorX<Value>> x(value.data(), std::ssize(value));
  const Eigen::Map<const Eigen::VectorXd> reference(oracle.data(), std::ssize(oracle));
  const double difference = (x.template cast<double>() - reference).norm();
  const double norm = reference.norm();
  return norm == 0 ? difference : difference / norm;
}

template <typename Value>
double worst_head_error_of(std::span<const Value> value, std::span<const double> oracle,
                           int head_dim) {
  if (value.size() != oracle.size() || value.size() % head_dim != 0) {
    throw spec::contract_error(
        fmt::format("worst_head_error: {} values against {} of the oracle; both must be rows of {}",
                    value.size(), oracle.size(), head_dim));
  }
  double worst = 0;
  for (std::size_t i = 0; i < value.size(); i += head_dim) {
    const double error = relative_error_of(value.subspan(i, head_dim), oracle.subspan(i, head_dim));
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace

oracle_output attend_stored(const decode_input& input) {
  return attend(to_matrix(input.q, input.head_dim), stored_values(input), input.softmax_scale,
                rounding::none);
}

oracle_output attend_plain_route(const decode_input& input) {
  cache_values cache = stored_values(input);
  cache.k = cache.k.unaryExpr(&round_to_half).eval();
  cache.v = cache.v.unaryExpr(&round_to_half).eval();
  return attend(to_matrix(input.q, input.head_dim), cache, input.softmax_scale, rounding::to_half);
}

oracle_output attend_original(const original_cache& cache) {
  return attend(to_matrix(cache.q, cache.head_dim),
                {to_matrix(cache.k, cache.head_dim), to_matrix(cache.v, cache.head_dim)},
                cache.softmax_scale, rounding::none);
}

double relative_error(std::span<const float> value, std::span<const double> oracle) {
  return relative_error_of(value, oracle);
}

double relative_error(std::span<const double> value, std::span<const double> oracle) {
  return relative_error_of(value, oracle);
}

double worst_head_error(std::span<const float> value, std::span<const double> oracle,
                        int head_dim) {
  return worst_head_error_of(value, oracle, head_dim);
}

double worst_head_error(std::span<const double> value, std::span<const double> oracle,
                        int head_dim) {
  return worst_head_error_of(value, oracle, head_dim);
}

}  // namespace kvproof::reference
