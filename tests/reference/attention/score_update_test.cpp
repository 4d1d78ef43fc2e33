// The score update: the vectors of golden_vectors.md section 5, and what holds for any logits and
// for what decode attention wrote.
#include "reference/attention/score_update.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/numerics/arithmetic.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/attention/head_fixture.hpp"
#include "tests/reference/formats/golden_blocks.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using namespace kvproof::tests;

namespace {

constexpr double rounding = 0x1p-24;  // of one fp32 operation, relative

std::vector<float> floats_of(const fenced_block& block, const std::string& key) {
  std::vector<float> values;
  for (const std::string& word : values_of(block, key))
    values.push_back(std::bit_cast<float>(hex(word)));
  return values;
}

bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

// Logits of one group and the m and l that belong to them: the maximum of each head, and the sum
// of the head's exponentials in ascending order.
struct group {
  int ratio;
  std::vector<float> scores, state;

  [[nodiscard]] std::size_t tokens() const {
    return scores.size() / static_cast<std::size_t>(ratio);
  }
  [[nodiscard]] float score(std::size_t t, int g) const {
    return scores[t * static_cast<std::size_t>(ratio) + static_cast<std::size_t>(g)];
  }
  [[nodiscard]] std::vector<float> updated(std::vector<float> running) const {
    update_scores({ratio, scores, state}, running);
    return running;
  }
  [[nodiscard]] std::vector<float> probabilities() const {
    return updated(std::vector<float>(tokens(), 0.0f));
  }
};

group random_group(std::uint64_t seed, int ratio, std::int64_t tokens, double spread) {
  seeded_values random(seed);
  group x{ratio, {}, {}};
  for (std::int64_t i = 0; i < tokens * ratio; ++i)
    x.scores.push_back(static_cast<float>(spread * random.normal()));
  for (int g = 0; g < ratio; ++g) {
    float m = -std::numeric_limits<float>::infinity(), l = 0;
    for (std::size_t t = 0; t < x.tokens(); ++t) m = max_ordered(m, x.score(t, g));
    for (std::size_t t = 0; t < x.tokens(); ++t) l = add(l, ex2_approx(sub(x.score(t, g), m)));
    x.state.insert(x.state.end(), {m, l});
  }
  return x;
}

// A seed, G, a length and a spread of logits.
group any_group(int ratio) {
  return random_group(*rc::gen::arbitrary<std::uint64_t>(), ratio,
                      *rc::gen::inRange<std::int64_t>(1, 500), *rc::gen::inRange(0, 40));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(score_update)

BOOST_AUTO_TEST_CASE(golden_groups) {
  const auto blocks = read_blocks("reference/spec/golden_vectors.md", "score_update");
  BOOST_TEST(blocks.size() >= 3);
  for (const fenced_block& block : blocks) {
    BOOST_TEST_CONTEXT(values_of(block, "name").at(0)) {
      const std::vector<float> state = floats_of(block, "state"), r = floats_of(block, "r"),
                               scores = floats_of(block, "scores"), p = floats_of(block, "p"),
                               before = floats_of(block, "running"),
                               after = floats_of(block, "after");
      const std::size_t ratio = state.size() / 2;
      BOOST_REQUIRE_EQUAL(r.size(), ratio);
      BOOST_REQUIRE_EQUAL(p.size(), scores.size());
      for (std::size_t g = 0; g < ratio; ++g) BOOST_TEST(same(div(1.0f, state[2 * g + 1]), r[g]));
      // Each head alone gives p itself: +0 + p is p.
      for (std::size_t i = 0; i < scores.size(); ++i) {
        float alone = 0;
        update_scores(
            {1, std::span(scores).subspan(i, 1), std::span(state).subspan(i % ratio * 2, 2)},
            std::span(&alone, 1));
        BOOST_TEST(same(alone, p[i]), "element " << i);
      }
      std::vector<float> running = before;
      update_scores({static_cast<int>(ratio), scores, state}, running);
      BOOST_REQUIRE_EQUAL(running.size(), after.size());
      for (std::size_t t = 0; t < after.size(); ++t)
        BOOST_TEST(same(running[t], after[t]), "token " << t);
    }
  }
}

// l of n terms is off by n - 1 roundings at most, then come r and p; 2^-126 a token may be flushed.
BOOST_AUTO_TEST_CASE(probabilities_of_one_head_sum_to_1) {
  BOOST_TEST(rc::check("sum of P at G = 1", [] {
    const group x = any_group(1);
    double sum = 0;
    for (const float p : x.probabilities()) sum += p;
    RC_ASSERT(std::fabs(sum - 1) <= static_cast<double>(x.tokens() + 2) * rounding);
  }));
}

// P is the largest 2^(s - m) / l: s - m is rounded, which moves the power by ln 2 of it; ex2 is off
// by 2^-22, r and p by one rounding each; below 2^-126 ex2 is 0.
BOOST_AUTO_TEST_CASE(the_largest_probability_of_the_group) {
  BOOST_TEST(rc::check("P beside fp64", [] {
    const group x = any_group(*rc::gen::inRange(1, spec::max_gqa_ratio + 1));
    const std::vector<float> actual = x.probabilities();
    for (std::size_t t = 0; t < x.tokens(); ++t) {
      double expected = 0, distance = 0;
      for (int g = 0; g < x.ratio; ++g) {
        const auto at = 2 * static_cast<std::size_t>(g);
        const double exponent = double{x.score(t, g)} - double{x.state[at]};
        expected = std::max(expected, std::exp2(exponent) / double{x.state[at + 1]});
        distance = std::max(distance, -exponent);
      }
      const double bound = expected * (0.7 * distance * rounding + 0x1p-21) + 0x1p-126;
      RC_ASSERT(std::fabs(actual[t] - expected) <= bound);
    }
  }));
}

// A group is the maximum of its heads, each alone; sums are rounded once.
BOOST_AUTO_TEST_CASE(a_group_is_the_maximum_of_its_heads) {
  BOOST_TEST(rc::check("group and heads", [] {
    const group x = any_group(*rc::gen::inRange(2, spec::max_gqa_ratio + 1));
    std::vector<float> largest(x.tokens(), 0.0f);
    for (int g = 0; g < x.ratio; ++g) {
      group head{1, {}, {}};
      for (std::size_t t = 0; t < x.tokens(); ++t) head.scores.push_back(x.score(t, g));
      const auto at = x.state.begin() + 2 * g;
      head.state.assign(at, at + 2);
      const std::vector<float> p = head.probabilities();
      for (std::size_t t = 0; t < p.size(); ++t) largest[t] = std::max(largest[t], p[t]);
    }
    RC_ASSERT(x.probabilities() == largest);
    seeded_values random(x.tokens());
    std::vector<float> running, expected;
    for (const float p : largest) {
      running.push_back(static_cast<float>(10 * random.uniform()));
      expected.push_back(running.back() + p);
    }
    RC_ASSERT(x.updated(running) == expected);
  }));
}

// Of decode attention's own state: l comes from factors and rounded exponents there. Exponents up
// to 64 are off by 2^-19, over all some units of 2^-19.
BOOST_AUTO_TEST_CASE(after_decode_attention) {
  for (const spec::kv_format& format : spec::kv_formats) {
    const head_fixture head =
        random_head({format.id, 64, 1, 1040, 33}, static_cast<std::uint64_t>(format.id), 4);
    const decode_output decoded = decode_attention(head.input());
    std::vector<float> running(1073, 0.0f);
    update_scores({1, decoded.scores, decoded.state}, running);
    double sum = 0;
    for (const float p : running) sum += p;
    // int2_g16 and the recent part sum probabilities rounded to fp16: 2^-12 each.
    BOOST_TEST(std::fabs(sum - 1) <= 0x1p-11, format.name << ": " << sum);
  }
}

BOOST_AUTO_TEST_CASE(few_tokens) {
  const std::vector<float> empty_state = {-std::numeric_limits<float>::infinity(), 0};
  update_scores({1, {}, empty_state}, {});  // as decode leaves an empty head
  group one = random_group(1, 3, 1, 4);
  for (int g = 0; g < 3; ++g) BOOST_TEST(one.state[static_cast<std::size_t>(2 * g + 1)] == 1.0f);
  BOOST_TEST(one.updated({0.5f}) == std::vector<float>{1.5f}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(logits_of_minus_infinity_add_nothing) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {-infinity, -infinity, -infinity, 1}, state = {3, 2, 1, 4};
  std::vector<float> running = {-0.0f, 7};
  update_scores({2, scores, state}, running);
  BOOST_TEST(bits_of(running[0]) == 0u);  // +0
  BOOST_TEST(running[1] == 7.25f);
}

BOOST_AUTO_TEST_CASE(a_head_of_nan_is_ignored) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (int spoiled = 0; spoiled < 4; ++spoiled) {
    group x = random_group(static_cast<std::uint64_t>(spoiled) + 2, 4, 40, 3);
    group others{3, {}, {}};
    for (int g = 0; g < 4; ++g) {
      if (g == spoiled) continue;
      const auto at = x.state.begin() + 2 * g;
      others.state.insert(others.state.end(), at, at + 2);
    }
    for (std::size_t i = 0; i < x.scores.size(); ++i) {
      if (static_cast<int>(i % 4) != spoiled) others.scores.push_back(x.scores[i]);
    }
    x.state[static_cast<std::size_t>(2 * spoiled + 1)] = nan;
    BOOST_TEST(x.probabilities() == others.probabilities(), boost::test_tools::per_element());
    for (std::size_t g = 0; g < 4; ++g) x.state[2 * g + 1] = nan;
    const std::vector<float> p = x.probabilities();
    BOOST_TEST(std::all_of(p.begin(), p.end(), [](float v) { return std::isnan(v); }));
  }
}

BOOST_AUTO_TEST_CASE(shapes_are_checked) {
  const std::vector<float> scores(8, 0.0f), state(8, 1.0f);
  std::vector<float> running(2);
  const auto refused = [&](int ratio, std::size_t num_scores, std::size_t num_state) {
    BOOST_CHECK_THROW(update_scores({ratio, std::span(scores).first(num_scores),
                                     std::span(state).first(num_state)},
                                    running),
                      spec::contract_error);
  };
  refused(0, 0, 0);
  refused(9, 8, 8);
  refused(4, 7, 8);
  refused(4, 8, 6);
  update_scores({4, scores, state}, running);
}

BOOST_AUTO_TEST_SUITE_END()
