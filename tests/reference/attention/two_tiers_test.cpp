// Decode attention over a high tier (k8v4), a low tier (k4v2) and the recent part: what the tiers
// owe to each other and what they do not. The bits themselves: transcription_test.cpp.
#include <algorithm>
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string_view>

#include "reference/attention/decode_attention.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/attention/head_fixture.hpp"
#include "tests/reference/attention/same_bits.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::bits_of;
using tests::head_fixture;
using tests::head_shape;
using tests::random_head;
using tests::same_bits;

namespace {

// Each length of a tier at which a page, a block, a split or the split length ends or begins.
constexpr std::array<std::int64_t, 15> edges = {1,  31, 32,   33,   63,   64,   65,  95,
                                                96, 97, 1023, 1024, 1025, 8192, 8193};

enum class part : std::uint8_t { high, low, recent };

// One part of a head as a head of one tier.
head_fixture alone(const head_fixture& head, part which) {
  const head_shape& all = head.shape;
  head_shape shape = {which == part::low ? spec::format_id::k4v2 : spec::format_id::k8v4,
                      all.head_dim, all.gqa_ratio, 0, 0};
  std::int64_t first = 0;
  if (which == part::high) shape.num_quantized = all.num_quantized;
  if (which == part::low) {
    first = all.num_quantized;
    shape.num_quantized = all.num_low;
  }
  if (which == part::recent) {
    first = all.num_quantized + all.num_low;
    shape.num_recent = all.num_recent;
  }
  const auto cut = [&](const std::vector<half_bits>& x) {
    const auto begin = x.begin() + first * all.head_dim;
    return std::vector<half_bits>(begin, begin + shape.num_tokens() * all.head_dim);
  };
  return {shape, head.q, cut(head.k), cut(head.v)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(two_tiers)

// out, state and scores: with one tier empty the other, and the recent part, are as if it did not
// exist.
BOOST_AUTO_TEST_CASE(an_empty_tier_leaves_the_bits_of_the_other) {
  for (const int head_dim : {64, 128}) {
    for (const std::int64_t n : edges) {
      for (const std::int64_t recent : {0, 37}) {
        BOOST_TEST_CONTEXT("head_dim " << head_dim << " tokens " << n << " + " << recent) {
          const auto seed = static_cast<std::uint64_t>(n);
          const head_fixture only_low =
              random_head({spec::format_id::k8v4, head_dim, 2, 0, recent, n}, seed);
          const head_fixture low({spec::format_id::k4v2, head_dim, 2, n, recent}, only_low.q,
                                 only_low.k, only_low.v);
          BOOST_TEST(same_bits(decode_attention(only_low.input()), decode_attention(low.input())));

          // The high tier without a low one is the cache of one tier; pages of a low tier of length
          // 0 are not looked at.
          const head_fixture high =
              random_head({spec::format_id::k8v4, head_dim, 2, n, recent}, seed);
          decode_input with_pages = high.input();
          const std::vector<std::span<const std::byte>> no_pages(3);
          with_pages.low_pages = no_pages;
          BOOST_TEST(same_bits(decode_attention(high.input()), decode_attention(with_pages)));
        }
      }
    }
  }
}

// Position t of the low tier is nh + t, the recent tokens follow.
BOOST_AUTO_TEST_CASE(scores_stand_at_the_position_of_their_token) {
  const auto check = [](std::int64_t high, std::int64_t low) {
    BOOST_TEST_CONTEXT("tokens " << high << " + " << low) {
      const head_fixture head = random_head({spec::format_id::k8v4, 64, 2, high, 35, low}, 2);
      const std::vector<float> scores = decode_attention(head.input()).scores;
      std::vector<float> expected;
      for (const part which : {part::high, part::low, part::recent}) {
        const std::vector<float> own = decode_attention(alone(head, which).input()).scores;
        expected.insert(expected.end(), own.begin(), own.end());
      }
      BOOST_TEST((bits_of(scores) == bits_of(expected)));
    }
  };
  for (const std::int64_t n : edges) {
    check(n, 33);
    check(33, n);
  }
}

// Tiers of at most one split each: the state is the merge of high, low and recent, in this order,
// and other orders are distinguishable.
BOOST_AUTO_TEST_CASE(the_low_tier_is_merged_after_the_high_one_and_before_the_recent_part) {
  struct softmax_state {
    float m, l;
  };
  const auto state_of = [](const head_fixture& head, std::size_t g) {
    const decode_output output = decode_attention(head.input());
    return softmax_state{output.state[2 * g], output.state[2 * g + 1]};
  };
  const auto merged = [](softmax_state a, softmax_state b) {
    const float n = std::max(a.m, b.m);
    return softmax_state{n, std::fma(a.l, ex2_approx(a.m - n), b.l * ex2_approx(b.m - n))};
  };
  int other_orders = 0;
  for (const std::int64_t high : {1, 33, 1000, 1024}) {
    for (const std::int64_t low : {1, 65, 1000, 1024}) {
      const head_fixture head = random_head({spec::format_id::k8v4, 64, 3, high, 40, low}, 3);
      const head_fixture parts[] = {alone(head, part::high), alone(head, part::low),
                                    alone(head, part::recent)};
      for (std::size_t g = 0; g < 3; ++g) {
        const softmax_state h = state_of(parts[0], g), l = state_of(parts[1], g),
                            r = state_of(parts[2], g), all = state_of(head, g);
        const softmax_state expected = merged(merged(h, l), r);
        BOOST_TEST(std::bit_cast<std::uint32_t>(all.m) == std::bit_cast<std::uint32_t>(expected.m));
        BOOST_TEST(std::bit_cast<std::uint32_t>(all.l) == std::bit_cast<std::uint32_t>(expected.l));
        other_orders += merged(merged(h, r), l).l != all.l;
      }
    }
  }
  BOOST_TEST(other_orders > 0);
}

// Which tokens are in which tier changes their precision, not their share: with keys and values
// that both tiers store exactly, tiers are invisible but for rounding of the sums.
BOOST_AUTO_TEST_CASE(tokens_that_both_tiers_store_exactly_count_the_same) {
  for (const int head_dim : {64, 128}) {
    const std::int64_t tokens = 150;
    tests::seeded_values random(4);
    std::vector<half_bits> k, v;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (int channel = 0; channel < head_dim; ++channel) {
        const bool upper = random.below(2) != 0;
        k.push_back(upper ? 0x3c00 : 0xbc00);                 // 1 or -1
        v.push_back(random.below(2) != 0 ? 0x4200 : 0x0000);  // 3 or 0
      }
    }
    const std::vector<half_bits> q = random.normal_halves(2 * head_dim);
    const auto run = [&](std::int64_t high, std::int64_t low) {
      return decode_attention(
          head_fixture({spec::format_id::k8v4, head_dim, 2, high, tokens - high - low, low}, q, k,
                       v)
              .input());
    };
    const decode_output recent_only = run(0, 0);
    for (const auto& [high, low] : {std::pair{150, 0}, {0, 150}, {50, 100}, {100, 50}, {33, 65}}) {
      const decode_output output = run(high, low);
      for (std::size_t i = 0; i < output.out.size(); ++i) {
        BOOST_TEST(std::fabs(output.out[i] - recent_only.out[i]) <= 3e-3);
      }
    }
  }
}

// A NaN of a key in either tier reaches everything, its score alone is NaN; a NaN of a value
// reaches every channel.
BOOST_AUTO_TEST_CASE(nan_in_either_tier_reaches_the_output) {
  const head_shape shape = {spec::format_id::k8v4, 64, 2, 40, 10, 70};
  const head_fixture head = random_head(shape, 5);
  for (const std::int64_t token : {0, 39, 40, 109}) {
    std::vector<half_bits> k = head.k, v = head.v;
    k[static_cast<std::size_t>(token * 64 + 20)] = 0x7e00;
    v[static_cast<std::size_t>(token * 64 + 20)] = 0x7c00;
    const decode_output by_key = decode_attention(head_fixture(shape, head.q, k, head.v).input());
    for (const float x : by_key.out) BOOST_TEST(std::isnan(x));
    for (std::size_t i = 0; i < by_key.scores.size(); ++i) {
      BOOST_TEST(std::isnan(by_key.scores[i]) == (static_cast<std::int64_t>(i / 2) == token));
    }
    const decode_output by_value = decode_attention(head_fixture(shape, head.q, head.k, v).input());
    for (const float x : by_value.out) BOOST_TEST(std::isnan(x));
    BOOST_TEST(!std::isnan(by_value.state[1]));
  }
}

BOOST_AUTO_TEST_CASE(three_empty_parts_give_zeros_and_minus_infinity) {
  const decode_output output =
      decode_attention(random_head({spec::format_id::k8v4, 64, 1, 0, 0, 0}, 6).input());
  BOOST_TEST((bits_of(output.out) == std::vector<std::uint32_t>(64, 0)));
  BOOST_TEST((bits_of(output.state) == std::vector<std::uint32_t>{0xff800000, 0}));
  BOOST_TEST(output.scores.empty());
}

BOOST_AUTO_TEST_CASE(other_pairs_and_shapes_are_refused) {
  const head_fixture head = random_head({spec::format_id::k8v4, 64, 1, 40, 3, 70}, 7);
  const decode_input good = head.input();
  BOOST_CHECK_NO_THROW(static_cast<void>(decode_attention(good)));
  const auto refuses = [&](const auto& change) {
    decode_input bad = good;
    change(bad);
    BOOST_CHECK_THROW(static_cast<void>(decode_attention(bad)), spec::contract_error);
  };
  refuses([](decode_input& in) { in.format = spec::format_id::k4v2; });
  refuses([](decode_input& in) { in.format = spec::format_id::int2_g16, in.num_quantized = 0; });
  refuses([](decode_input& in) { in.num_low = -1; });
  refuses([](decode_input& in) { in.num_low = 129; });       // two pages given
  refuses([](decode_input& in) { in.num_quantized = 65; });  // of 32 tokens
  refuses([](decode_input& in) { in.low_pages = {}; });
  std::vector<std::span<const std::byte>> short_pages(good.low_pages.begin(), good.low_pages.end());
  short_pages[1] = short_pages[1].first(3583);
  refuses([&](decode_input& in) { in.low_pages = short_pages; });
  decode_input bad = good;
  bad.format = spec::format_id::k4v2;
  BOOST_CHECK_EXCEPTION(static_cast<void>(decode_attention(bad)), spec::contract_error,
                        [](const spec::contract_error& e) {
                          const std::string_view text = e.what();
                          return text.find("only k8v4 has one (k4v2)") != std::string_view::npos &&
                                 text.find("num_low 0") != std::string_view::npos;
                        });
}

BOOST_AUTO_TEST_SUITE_END()
