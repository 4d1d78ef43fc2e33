#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "reference/numerics/half.hpp"
#include "reference/oracle/attention_oracle.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/attention/head_fixture.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::head_fixture;
using tests::random_head;

namespace {

original_cache original_of(const head_fixture& head) {
  return {head.shape.head_dim, head.shape.gqa_ratio, head.softmax_scale, head.q, head.k, head.v};
}

// Attention of one query by its textbook formula in natural logarithms, token by token.
struct textbook {
  std::vector<double> logits;  // [tokens]
  double sum = 0;              // of their exponentials
  std::vector<double> out;     // [head_dim]
};
textbook textbook_attention(const head_fixture& head, std::size_t query, std::span<const double> k,
                            std::span<const double> v) {
  const auto width = static_cast<std::size_t>(head.shape.head_dim);
  textbook t;
  for (std::size_t token = 0; token < k.size() / width; ++token) {
    double dot = 0;
    for (std::size_t i = 0; i < width; ++i)
      dot += double{half_to_float(head.q[width * query + i])} * k[width * token + i];
    t.logits.push_back(head.softmax_scale * dot);
    t.sum += std::exp(t.logits.back());
  }
  for (std::size_t i = 0; i < width; ++i) {
    double o = 0;
    for (std::size_t token = 0; token < t.logits.size(); ++token)
      o += std::exp(t.logits[token]) / t.sum * v[width * token + i];
    t.out.push_back(o);
  }
  return t;
}

std::vector<double> values_of(const std::vector<half_bits>& x) {
  std::vector<double> values;
  for (const half_bits h : x) values.push_back(half_to_float(h));
  return values;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(oracle)

BOOST_AUTO_TEST_CASE(equals_the_textbook_formula) {
  const head_fixture head = random_head({spec::format_id::k8v4, 64, 2, 0, 50}, 1);
  const oracle_output oracle = attend_original(original_of(head));
  for (std::size_t g = 0; g < 2; ++g) {
    const textbook expected = textbook_attention(head, g, values_of(head.k), values_of(head.v));
    BOOST_REQUIRE(expected.logits.size() == 50u);
    for (std::size_t t = 0; t < 50; ++t)
      BOOST_TEST(std::fabs(oracle.scores[2 * t + g] - expected.logits[t] / std::log(2.0)) <= 1e-12);
    BOOST_TEST(std::fabs(oracle.log_sum_exp[g] - std::log2(expected.sum)) <= 1e-12);
    for (std::size_t i = 0; i < 64; ++i)
      BOOST_TEST(std::fabs(oracle.out[64 * g + i] - expected.out[i]) <= 1e-13);
  }
}

BOOST_AUTO_TEST_CASE(recent_tokens_are_stored_as_they_are) {
  const head_fixture head = random_head({spec::format_id::k4v2, 128, 3, 0, 33}, 2);
  const oracle_output stored = attend_stored(head.input());
  const oracle_output original = attend_original(original_of(head));
  BOOST_TEST(relative_error(stored.out, original.out) == 0);
  BOOST_TEST((stored.scores == original.scores));
}

// High tier, low tier, recent part: the textbook formula on the decoded values in this order.
BOOST_AUTO_TEST_CASE(two_tiers_are_attended_in_the_order_of_positions) {
  const head_fixture head = random_head({spec::format_id::k8v4, 64, 2, 40, 9, 70}, 5);
  std::vector<std::span<const std::byte>> pages = head.pool.readable();
  std::vector<std::span<const std::byte>> low_pages = head.low_pool.readable();
  dequantized_tokens all = dequantize_tokens(spec::format_of(spec::format_id::k8v4), 64, 40, pages);
  const dequantized_tokens low =
      dequantize_tokens(spec::format_of(spec::format_id::k4v2), 64, 70, low_pages);
  all.k.insert(all.k.end(), low.k.begin(), low.k.end());
  all.v.insert(all.v.end(), low.v.begin(), low.v.end());
  for (std::size_t i = all.k.size(); i < head.k.size(); ++i) {
    all.k.push_back(half_to_float(head.k[i]));
    all.v.push_back(half_to_float(head.v[i]));
  }
  const oracle_output stored = attend_stored(head.input());
  const oracle_output plain = attend_plain_route(head.input());
  BOOST_REQUIRE(stored.scores.size() == 119u * 2);
  for (std::size_t g = 0; g < 2; ++g) {
    const textbook expected = textbook_attention(head, g, all.k, all.v);
    for (std::size_t t = 0; t < 119; ++t) {
      const double score = expected.logits[t] / std::log(2.0);
      BOOST_TEST(std::fabs(stored.scores[2 * t + g] - score) <= 1e-12);
      BOOST_TEST(std::fabs(plain.scores[2 * t + g] - score) <= 1e-2);
    }
    for (std::size_t i = 0; i < 64; ++i) {
      BOOST_TEST(std::fabs(stored.out[64 * g + i] - expected.out[i]) <= 1e-12);
      BOOST_TEST(std::fabs(plain.out[64 * g + i] - expected.out[i]) <= 1e-2);
    }
  }
}

// More bits lose less.
BOOST_AUTO_TEST_CASE(scheme_errors_are_ordered_by_bits) {
  const auto scheme_error = [](spec::format_id format) {
    const head_fixture head = random_head({format, 128, 4, 256, 0}, 3);
    return worst_head_error(attend_stored(head.input()).out, attend_original(original_of(head)).out,
                            128);
  };
  const double k8v4 = scheme_error(spec::format_id::k8v4);
  const double k4v2 = scheme_error(spec::format_id::k4v2);
  BOOST_TEST(k8v4 > 0.01);
  BOOST_TEST(k8v4 < k4v2);
  BOOST_TEST(k4v2 < 1);
}

BOOST_AUTO_TEST_CASE(an_empty_cache_gives_zeros_and_minus_infinity) {
  const head_fixture head = random_head({spec::format_id::int2_g16, 64, 2, 0, 0}, 4);
  const oracle_output oracle = attend_stored(head.input());
  BOOST_TEST((oracle.out == std::vector<double>(128, 0.0)));
  BOOST_TEST(oracle.log_sum_exp[1] == -std::numeric_limits<double>::infinity());
  BOOST_TEST(oracle.scores.empty());
}

BOOST_AUTO_TEST_CASE(relative_errors) {
  const std::vector<double> oracle = {3, 4, 0, 0};
  const std::vector<float> same = {3, 4, 0, 0};
  const std::vector<float> off = {3, 4.5f, 0, 0.25f};
  const std::vector<float> broken = {3, std::nanf(""), 0, 0};
  BOOST_TEST(relative_error(same, oracle) == 0);
  BOOST_TEST(relative_error(std::span(off).first(2), std::span(oracle).first(2)) == 0.1);
  BOOST_TEST(worst_head_error(off, oracle, 2) == 0.25);  // absolute where the oracle is zero
  BOOST_TEST(std::isnan(relative_error(broken, oracle)));
  BOOST_TEST(std::isnan(worst_head_error(broken, oracle, 2)));
  BOOST_CHECK_THROW(static_cast<void>(relative_error(std::span(same).first(3), oracle)),
                    spec::contract_error);
  BOOST_CHECK_THROW(static_cast<void>(worst_head_error(same, oracle, 3)), spec::contract_error);
}

BOOST_AUTO_TEST_SUITE_END()
