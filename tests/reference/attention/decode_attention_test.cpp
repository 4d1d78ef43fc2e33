#include "reference/attention/decode_attention.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "reference/attention/attention_head.hpp"
#include "reference/formats/page_layout.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/numerics/half.hpp"
#include "reference/oracle/attention_oracle.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/attention/head_fixture.hpp"
#include "tests/reference/attention/plain_scores.hpp"
#include "tests/reference/attention/same_bits.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::bits_of;
using tests::head_fixture;
using tests::head_shape;
using tests::page_pool;
using tests::random_head;
using tests::same_bits;

namespace {

constexpr std::array all_formats = {spec::format_id::int2_g16, spec::format_id::k8v4,
                                    spec::format_id::k4v2};

template <typename Check>
void for_each_format(const Check& check) {
  for (const spec::format_id format : all_formats) {
    for (const int head_dim : {64, 128}) {
      BOOST_TEST_CONTEXT(spec::format_of(format).name << " head_dim " << head_dim) {
        check(format, head_dim);
      }
    }
  }
}

std::vector<half_bits> halves(std::int64_t count, float value) {
  return std::vector<half_bits>(static_cast<std::size_t>(count), float_to_half(value));
}

// [tokens][head_dim] with the given value of (token, channel).
template <typename Value>
std::vector<half_bits> filled(std::int64_t tokens, int head_dim, const Value& value) {
  std::vector<half_bits> x;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int channel = 0; channel < head_dim; ++channel) {
      x.push_back(float_to_half(static_cast<float>(value(t, channel))));
    }
  }
  return x;
}

// A cache of tokens [first, first + count) of another one's quantized part, as a head of its own.
head_fixture slice(const head_fixture& head, std::int64_t first, std::int64_t count) {
  head_shape shape = head.shape;
  shape.num_quantized = count;
  shape.num_recent = shape.num_low = 0;
  const auto cut = [&](const std::vector<half_bits>& x) {
    const auto begin = x.begin() + first * shape.head_dim;
    return std::vector<half_bits>(begin, begin + count * shape.head_dim);
  };
  return {shape, head.q, cut(head.k), cut(head.v)};
}

struct softmax_state {
  float m, l;
};

std::vector<softmax_state> states_of(const head_fixture& head) {
  const decode_output output = decode_attention(head.input());
  std::vector<softmax_state> states;
  for (std::size_t i = 0; i < output.state.size(); i += 2) {
    states.push_back({output.state[i], output.state[i + 1]});
  }
  return states;
}

// The merge of decode_attention.md section 3, for m and l of each query.
std::vector<softmax_state> merged(std::vector<softmax_state> a,
                                  const std::vector<softmax_state>& b) {
  for (std::size_t g = 0; g < a.size(); ++g) {
    const float n = std::max(a[g].m, b[g].m);
    const float fa = ex2_approx(a[g].m - n);
    const float fb = ex2_approx(b[g].m - n);
    a[g] = {n, std::fma(a[g].l, fa, b[g].l * fb)};
  }
  return a;
}

void check_same_states(const std::vector<softmax_state>& a, const std::vector<softmax_state>& b) {
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  for (std::size_t g = 0; g < a.size(); ++g) {
    BOOST_TEST(std::bit_cast<std::uint32_t>(a[g].m) == std::bit_cast<std::uint32_t>(b[g].m));
    BOOST_TEST(std::bit_cast<std::uint32_t>(a[g].l) == std::bit_cast<std::uint32_t>(b[g].l));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(decode)

BOOST_AUTO_TEST_CASE(an_empty_cache_gives_zeros_and_minus_infinity) {
  for_each_format([](spec::format_id format, int head_dim) {
    const head_fixture head = random_head({format, head_dim, 3, 0, 0}, 1);
    const decode_output output = decode_attention(head.input());
    BOOST_TEST((bits_of(output.out) ==
                std::vector<std::uint32_t>(static_cast<std::size_t>(3 * head_dim), 0)));
    BOOST_TEST((bits_of(output.state) ==
                std::vector<std::uint32_t>{0xff800000, 0, 0xff800000, 0, 0xff800000, 0}));
    BOOST_TEST(output.scores.empty());
  });
}

// c = 1 (softmax_scale = ln 2) and integer logits 0, -1, -2, ...: p = 1, 1/2, 1/4, ... exactly, so
// that every step of the contract can be done by hand. V of token t is 2^t in all channels, so all
// products p * v are 1: out = n / (2 - 2^(1-n)).
BOOST_AUTO_TEST_CASE(worked_example_with_integer_logits) {
  for_each_format([](spec::format_id format, int head_dim) {
    for (const auto& [quantized, recent] : {std::pair{0, 4}, std::pair{16, 0}, std::pair{16, 3}}) {
      const std::int64_t tokens = quantized + recent;
      // Key of token t: -(t mod 4) in channel 0, so int2_g16 stores it exactly (scale 1, zero -3).
      const auto key = [](std::int64_t t, int channel) { return channel == 0 ? -(t % 4) : 0; };
      const auto value = [](std::int64_t t, int) { return 1 << (t % 4); };
      head_fixture head({format, head_dim, 1, quantized, recent},
                        filled(1, head_dim, [](std::int64_t, int ch) { return ch == 0; }),
                        filled(tokens, head_dim, key), filled(tokens, head_dim, value));
      head.softmax_scale = 0x1.62e43p-1f;  // RN32(RN64(scale * log2 e)) = 1
      const decode_output output = decode_attention(head.input());

      float l = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        BOOST_TEST(output.scores[static_cast<std::size_t>(t)] == static_cast<float>(-(t % 4)));
        l += std::ldexp(1.0f, static_cast<int>(-(t % 4)));
      }
      BOOST_TEST(output.state[0] == 0.0f);
      BOOST_TEST(output.state[1] == l);
      const float expected = static_cast<float>(tokens) / l;
      for (const float x : output.out) BOOST_TEST(x == expected);
    }
  });
}

// One token: p = l = 1. Per-token formats: z = RN(vs*MID + vz), y = RN(z - MID*vs), o = RN(code*vs
// + y): three roundings of terms below R|vs| + |vz|. int2_g16: one rounding. Recent: exact.
BOOST_AUTO_TEST_CASE(one_token_returns_its_decoded_value) {
  for (const spec::format_id format : {spec::format_id::k8v4, spec::format_id::k4v2}) {
    for (const int head_dim : {64, 128}) {
      const head_fixture head = random_head({format, head_dim, 2, 1, 0}, 2);
      const decode_output output = decode_attention(head.input());
      const auto pages = head.pool.readable();
      const auto decoded = dequantize_tokens(spec::format_of(format), head_dim, 1, pages);
      const auto items = unpack_tokens(spec::format_of(format), head_dim, 1, pages);
      const double largest = 15 * half_to_float(items.value_scales[0]) +
                             std::fabs(half_to_float(items.value_zeros[0]));
      for (std::size_t i = 0; i < output.out.size(); ++i) {
        const double v = decoded.v[i % static_cast<std::size_t>(head_dim)];
        BOOST_TEST(std::fabs(output.out[i] - v) <= 3 * 0x1p-24 * largest);
      }
      BOOST_TEST(output.state[1] == 1.0f);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_recent_token_returns_its_value_exactly) {
  for_each_format([](spec::format_id format, int head_dim) {
    const head_fixture head = random_head({format, head_dim, 2, 0, 1}, 3);
    const decode_output output = decode_attention(head.input());
    for (std::size_t i = 0; i < output.out.size(); ++i) {
      BOOST_TEST(output.out[i] == half_to_float(head.v[i % static_cast<std::size_t>(head_dim)]));
    }
  });
}

// Numerator c * sum p and denominator sum p are sums of one sign: fewer than 200 fp32 roundings
// (2^-24) or 70 MMA steps (17 terms cut below 2^-25 of the largest and one truncation: under 2^-20)
// each.
BOOST_AUTO_TEST_CASE(constant_values_come_out_as_the_constant) {
  for_each_format([](spec::format_id format, int head_dim) {
    for (const float c : {1.0f, -7.0f, 0x1.47cp-7f, 65504.0f, 0x1p-24f, 100.0f}) {
      for (const auto& [quantized, recent] : {std::pair{1008, 0}, std::pair{64, 33}}) {
        const std::int64_t size = std::int64_t{quantized + recent} * head_dim;
        tests::seeded_values random(5);
        const head_fixture head({format, head_dim, 4, quantized, recent},
                                random.normal_halves(4 * head_dim), random.normal_halves(size),
                                halves(size, c));
        for (const float x : decode_attention(head.input()).out) {
          BOOST_TEST(std::fabs(x - c) <= 140 * 0x1p-20 * std::fabs(c));
        }
      }
    }
  });
}

// Equal keys: the output is the mean of the values. K is 3 everywhere; V is the token's number in
// every channel (constant groups of 16 channels, stored exactly), then the channel's number.
BOOST_AUTO_TEST_CASE(equal_keys_give_the_mean_of_the_values) {
  for_each_format([](spec::format_id format, int head_dim) {
    const std::int64_t quantized = 192;
    for (const std::int64_t recent : {0, 45}) {
      const std::int64_t tokens = quantized + recent;
      tests::seeded_values random(6);
      const std::vector<half_bits> q = random.normal_halves(8 * head_dim);
      const auto keys = halves(tokens * head_dim, 3);
      const head_fixture by_token({format, head_dim, 8, quantized, recent}, q, keys,
                                  filled(tokens, head_dim, [](auto t, int) { return t; }));
      const double mean = static_cast<double>(tokens - 1) / 2;
      for (const float x : decode_attention(by_token.input()).out) {
        BOOST_TEST(std::fabs(x - mean) <= mean * 0x1p-13);
      }

      const head_fixture by_channel({format, head_dim, 8, quantized, recent}, q, keys,
                                    filled(tokens, head_dim, [](auto, int ch) { return ch + 1; }));
      const auto decoded =
          dequantize_tokens(spec::format_of(format), head_dim, 16, by_channel.pool.readable());
      const decode_output output = decode_attention(by_channel.input());
      for (std::size_t i = 0; i < output.out.size(); ++i) {
        const std::size_t channel = i % static_cast<std::size_t>(head_dim);
        const double expected = (static_cast<double>(quantized) * decoded.v[channel] +
                                 static_cast<double>(recent) * static_cast<double>(channel + 1)) /
                                static_cast<double>(tokens);
        BOOST_TEST(std::fabs(output.out[i] - expected) <= head_dim * 0x1p-13);
      }
    }
  });
}

// Every finite half as query: qh has 5 significant bits (or is a multiple of 2^-18), lies towards
// zero, and ql is the rest, exactly. Where eK = 18 both are a quarter, rounded where subnormal.
BOOST_AUTO_TEST_CASE(queries_are_cut_in_two_short_numbers) {
  constexpr int width = 64, ratio = 8;
  std::size_t wrong = 0, seen = 0;
  for (std::uint32_t first = 0; first < 0x10000; first += 16 * ratio) {
    if ((first & 0x7c00) == 0x7c00) continue;
    std::vector<half_bits> q;  // each group of 16 channels holds the same 128 patterns
    for (std::uint32_t i = 0; i < width * ratio; ++i) {
      q.push_back(static_cast<half_bits>(first + i / width * 16 + i % 16));
    }
    const head_fixture fixture({spec::format_id::int2_g16, width, ratio, 0, 0}, q, {}, {});
    const decode_input input = fixture.input();
    const attention_head head(input, architecture::sm_90);
    for (int g = 0; g < ratio; ++g) {
      for (int ch = 0; ch < 16; ++ch) {
        const double whole = half_to_float(q[static_cast<std::size_t>(g * width + ch)]);
        const double high = half_to_float(head.q_high.at(ch, g));
        const double low = half_to_float(head.q_low.at(ch, g));
        const double unit =
            std::ldexp(1.0, whole == 0 ? -18 : std::max(std::ilogb(whole) - 4, -18));
        ++seen;
        wrong += high != std::trunc(whole / unit) * unit || high + low != whole;
        wrong += std::fabs(high) > std::fabs(whole) || !(std::fabs(low) < unit);
        const auto quarter = [](double x) { return float_to_half(static_cast<float>(x / 4)); };
        wrong += head.q_high.at(16 + ch, g) != quarter(high);
        wrong += head.q_low.at(16 + ch, g) != quarter(low);
      }
    }
  }
  BOOST_TEST(seen == 0xf800u);
  BOOST_TEST(wrong == 0u);
}

// Queries up to 65504, subnormal, and mixed: scores stay finite and are those of the formulas.
BOOST_AUTO_TEST_CASE(int2_queries_at_the_ends_of_fp16) {
  for (const int head_dim : {64, 128}) {
    for (const std::vector<half_bits>& patterns :
         {std::vector<half_bits>{0x7bff, 0xfbff, 0x7bc0, 0xfbc1},
          {0x0001, 0x803f, 0x0040, 0x8041, 0x03ff, 0x83c0},
          {0x0400, 0x843f, 0x0440, 0x83ff},
          {0x7bff, 0x0001, 0x8000, 0xfbff, 0x003f, 0x3c7f}}) {
      tests::seeded_values random(19);
      const auto size = std::int64_t{64} * head_dim;
      std::vector<half_bits> q;
      for (int i = 0; i < 3 * head_dim; ++i) {
        q.push_back(patterns[static_cast<std::size_t>(random.below(std::ssize(patterns)))]);
      }
      // Key ranges up to 2, so that qh * ks stays below 65504.
      std::vector<half_bits> k;
      for (std::int64_t i = 0; i < size; ++i) {
        k.push_back(float_to_half(static_cast<float>(2 * random.uniform() - 1)));
      }
      const head_fixture head({spec::format_id::int2_g16, head_dim, 3, 64, 0}, q, k,
                              random.normal_halves(size));
      const decode_output output = decode_attention(head.input());
      const oracle_output oracle = attend_stored(head.input());
      std::size_t mismatches = 0;
      double largest = 0, error = 0;
      for (std::size_t g = 0; g < 3; ++g) {
        const std::vector<float> expected = tests::plain_scores(head, g);
        for (std::size_t t = 0; t < expected.size(); ++t) {
          const float s = output.scores[t * 3 + g];
          mismatches += bits_of({&s, 1}) != bits_of({&expected[t], 1});
          largest = std::max(largest, std::fabs(oracle.scores[t * 3 + g]));
          error = std::max(error, std::fabs(s - oracle.scores[t * 3 + g]));
        }
      }
      BOOST_TEST_CONTEXT("head_dim " << head_dim << " queries like " << patterns[0]) {
        BOOST_TEST(mismatches == 0u);
        BOOST_TEST(std::ranges::all_of(output.scores, [](float s) { return std::isfinite(s); }));
        BOOST_TEST(std::ranges::all_of(output.out, [](float x) { return std::isfinite(x); }));
        // Exact for large queries but for the last bit of bl; subnormal ones lose units of 2^-24
        // per channel in q'h, q'l, bh and bl, and the keys count them 3 * 2^4 times at most.
        const double lost = head_dim * 4 * 0x1p-24 * 48 * head.softmax_scale;
        BOOST_TEST(error <= largest * 0x1p-14 + lost);
      }
    }
  }
}

// Scores of sections 1 and 2, token by token from the unpacked cache and the scalar tensor-core
// model.
BOOST_AUTO_TEST_CASE(scores_are_those_of_the_formulas) {
  for_each_format([](spec::format_id id, int head_dim) {
    const std::size_t num_queries = 5;
    head_fixture head = random_head({id, head_dim, 5, 112, 37}, 7);
    head.softmax_scale = 0x1.0624dep-4f;  // its fp32 product with RN32(log2 e) is another c
    const decode_output output = decode_attention(head.input());
    BOOST_REQUIRE_EQUAL(output.scores.size(), (112 + 37) * num_queries);
    std::size_t mismatches = 0;
    for (std::size_t g = 0; g < num_queries; ++g) {
      const std::vector<float> expected = tests::plain_scores(head, g);
      for (std::size_t t = 0; t < expected.size(); ++t) {
        mismatches += std::bit_cast<std::uint32_t>(expected[t]) !=
                      std::bit_cast<std::uint32_t>(output.scores[t * num_queries + g]);
      }
    }
    BOOST_TEST(mismatches == 0u);
  });
}

// One query row against the literal transcription; the scores are returned.
std::vector<float> check_scores_of_query(const head_fixture& head) {
  const std::vector<float> scores = decode_attention(head.input()).scores;
  BOOST_TEST((bits_of(scores) == bits_of(tests::plain_scores(head, 0))));
  return scores;
}

template <typename Check>
void for_each_per_token_format(const Check& check) {
  for_each_format([&](spec::format_id id, int head_dim) {
    if (spec::format_of(id).scales == spec::scale_layout::per_token) check(id, head_dim);
  });
}

// qm = 0: nothing is divided, every logit is +0 and all weights are equal, whatever the sign of the
// query's zeros.
BOOST_AUTO_TEST_CASE(a_zero_query_gives_zero_logits) {
  for_each_per_token_format([](spec::format_id id, int head_dim) {
    for (const half_bits zero : {half_bits{0x0000}, half_bits{0x8000}}) {
      head_fixture head = random_head({id, head_dim, 1, 100, 0}, 41);
      std::ranges::fill(head.q, zero);
      const std::vector<float> scores = check_scores_of_query(head);
      BOOST_TEST((bits_of(scores) == std::vector<std::uint32_t>(100, 0)));
      BOOST_TEST(
          (bits_of(decode_attention(head.input()).state) == bits_of(std::array{0.0f, 100.0f})));
    }
  });
}

// The scale of a query is no part of its fixed point: 2^k q has the same integers and 2^k times the
// logits, down to subnormal queries and up to the largest half.
BOOST_AUTO_TEST_CASE(logits_scale_with_the_query_over_the_whole_range_of_fp16) {
  for_each_per_token_format([](spec::format_id id, int head_dim) {
    tests::seeded_values random(42);
    std::vector<float> numbers(static_cast<std::size_t>(head_dim));
    for (float& x : numbers) x = static_cast<float>(random.below(2 * 1023 + 1) - 1023);
    numbers[5] = -1023;
    head_fixture head = random_head({id, head_dim, 1, 70, 0}, 43);
    const auto scores_at = [&](int exponent) {
      std::ranges::transform(numbers, head.q.begin(),
                             [&](float x) { return float_to_half(std::ldexp(x, exponent)); });
      return check_scores_of_query(head);
    };
    const std::vector<float> scores = scores_at(0);
    for (const int exponent : {-24, -20, 3, 6}) {  // -24: subnormal elements only
      const std::vector<float> scaled = scores_at(exponent);
      std::size_t mismatches = 0;
      for (std::size_t t = 0; t < scores.size(); ++t) {
        mismatches += scaled[t] != std::ldexp(scores[t], exponent);
      }
      BOOST_TEST(mismatches == 0u, "2^" << exponent);
    }
    for (half_bits& x : head.q) x = random.below(2) != 0 ? 0x7bff : 0xfbff;
    const std::vector<float> largest = check_scores_of_query(head);
    BOOST_TEST(std::ranges::all_of(largest, [](float s) { return std::isfinite(s); }));
    BOOST_TEST(std::ranges::any_of(largest, [](float s) { return s > 1e4f; }));
  });
}

// Every code and every |qi| at its largest: 255 * 32639 * 128 = 1065336960 is below 2^31. Scale 1,
// zero -1, c = 1: s = unit * (dot - sum of qi), rounded as section 1 says.
BOOST_AUTO_TEST_CASE(the_largest_dot_product_does_not_overflow) {
  for_each_per_token_format([](spec::format_id id, int head_dim) {
    const spec::kv_format& format = spec::format_of(id);
    for (const int sign : {1, -1}) {
      const auto largest = static_cast<half_bits>(sign > 0 ? 0x7bff : 0xfbff);
      head_fixture head = random_head({id, head_dim, 1, 64, 0}, 44);
      std::ranges::fill(head.q, largest);
      head.softmax_scale = 0x1.62e43p-1f;
      for (auto& page : head.pool.bytes) {
        std::fill_n(page.begin(), format.tokens_per_page * format.key_bits / 8 * head_dim,
                    std::byte{0xff});
        for (int t = 0; t < format.tokens_per_page; ++t) {
          const scale_position at = layout_of(id, head_dim).scale(kv_side::key, t, 0);
          write_half(page, at.scale_byte, 0x3c00);
          write_half(page, at.zero_byte, 0xbc00);
        }
      }
      const auto max_code = static_cast<float>((1 << format.key_bits) - 1);
      const float unit = 65504.0f / 32639.0f;
      const auto sum = static_cast<float>(sign * 32639 * head_dim);
      const float expected = std::fma(unit, max_code * sum, -(unit * sum));
      for (const float s : check_scores_of_query(head)) BOOST_REQUIRE(s == expected);
      BOOST_TEST(std::fabs(expected) > 0.99999 * 14 * 65504 * head_dim);
    }
  });
}

// No threshold and no lag: m is the largest score, for each query.
BOOST_AUTO_TEST_CASE(the_maximum_is_that_of_the_scores) {
  for_each_format([](spec::format_id format, int head_dim) {
    const head_fixture head = random_head({format, head_dim, 4, 320, 50}, 18);
    const decode_output output = decode_attention(head.input());
    for (std::size_t g = 0; g < 4; ++g) {
      float largest = output.scores[g];
      for (std::size_t i = g; i < output.scores.size(); i += 4) {
        largest = std::max(largest, output.scores[i]);
      }
      BOOST_TEST(output.state[2 * g] == largest);
    }
  });
}

// The merge of runs of `length` tokens, each taken as a cache of its own.
std::vector<softmax_state> merge_of_slices(const head_fixture& head, std::int64_t length) {
  std::vector<softmax_state> total =
      states_of(slice(head, 0, std::min(length, head.shape.num_quantized)));
  for (std::int64_t first = length; first < head.shape.num_quantized; first += length) {
    const std::int64_t count = std::min(length, head.shape.num_quantized - first);
    total = merged(total, states_of(slice(head, first, count)));
  }
  return total;
}

// How many queries have another l; m does not know the order.
int count_other_sums(const std::vector<softmax_state>& a, const std::vector<softmax_state>& b) {
  int different = 0;
  for (std::size_t g = 0; g < a.size(); ++g) {
    BOOST_TEST(a[g].m == b[g].m);
    different += a[g].l != b[g].l;
  }
  return different;
}

// Up to four blocks of 64 tokens, each strand has one: the state is the merge of the blocks'
// states, wherever the last block ends. With a fifth block strand 0 goes on before it is merged.
BOOST_AUTO_TEST_CASE(strands_of_a_split_are_merged_in_ascending_order) {
  for_each_format([](spec::format_id format, int head_dim) {
    for (const std::int64_t tokens : {80, 95, 96, 97, 112, 128, 208, 223, 224, 225, 240, 256}) {
      if (tokens % spec::format_of(format).token_granularity != 0) continue;
      const head_fixture head = random_head({format, head_dim, 2, tokens, 0}, 8, 2);
      check_same_states(states_of(head), merge_of_slices(head, 64));
    }
    for (const std::int64_t tokens : {272, 320}) {
      const head_fixture five = random_head({format, head_dim, 8, tokens, 0}, 8);
      // Rounding can agree for some queries.
      BOOST_TEST(count_other_sums(states_of(five), merge_of_slices(five, 64)) > 0);
    }
  });
}

// Both pages of a block of k8v4 are one update of one strand, not two strands.
BOOST_AUTO_TEST_CASE(two_pages_of_k8v4_are_one_block) {
  for (const int head_dim : {64, 128}) {
    for (const std::int64_t tokens : {33, 63, 64}) {
      const head_fixture head = random_head({spec::format_id::k8v4, head_dim, 8, tokens, 0}, 21);
      BOOST_TEST(count_other_sums(states_of(head), merge_of_slices(head, 32)) > 0);
    }
  }
}

// The page after the last one, which would be in its block or begin the next: NaN as halves.
BOOST_AUTO_TEST_CASE(pages_behind_the_end_are_not_read) {
  for_each_format([](spec::format_id id, int head_dim) {
    const spec::kv_format& format = spec::format_of(id);
    const std::vector<std::byte> poison(
        static_cast<std::size_t>(spec::page_size_bytes(format, head_dim)), std::byte{0xff});
    for (const std::int64_t tokens :
         {1, 16, 31, 32, 33, 63, 64, 65, 80, 95, 96, 97, 128, 288, 1024, 1056}) {
      if (tokens % format.token_granularity != 0) continue;
      const head_fixture head = random_head({id, head_dim, 2, tokens, 3}, 22);
      const decode_input input = head.input();
      decode_input longer = input;
      std::vector<std::span<const std::byte>> pages(input.pages.begin(), input.pages.end());
      pages.insert(pages.end(), 2, poison);
      longer.pages = pages;
      BOOST_TEST(same_bits(decode_attention(input), decode_attention(longer)), tokens);
    }
  });
}

BOOST_AUTO_TEST_CASE(splits_are_merged_in_ascending_order) {
  for (const spec::format_id format : all_formats) {
    BOOST_TEST_CONTEXT(spec::format_of(format).name) {
      const head_fixture head = random_head({format, 64, 2, 2064, 0}, 9);
      check_same_states(states_of(head), merge_of_slices(head, 1024));
    }
  }
}

// Up to 8192 tokens a split has 1024, beyond it has 2048.
BOOST_AUTO_TEST_CASE(split_length_changes_beyond_8192_tokens) {
  for (const spec::format_id format : all_formats) {
    BOOST_TEST_CONTEXT(spec::format_of(format).name) {
      const head_fixture last = random_head({format, 64, 8, 8192, 0}, 9);
      check_same_states(states_of(last), merge_of_slices(last, 1024));
      const std::int64_t more = spec::format_of(format).token_granularity;
      const head_fixture beyond = random_head({format, 64, 8, 8192 + more, 0}, 9);
      // Rounding can agree for some queries.
      BOOST_TEST(count_other_sums(states_of(beyond), merge_of_slices(beyond, 1024)) > 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_recent_part_is_merged_last) {
  for_each_format([](spec::format_id format, int head_dim) {
    for (const std::int64_t recent : {1, 31, 32, 33, 127}) {
      const head_fixture head = random_head({format, head_dim, 2, 1040, recent}, 10);
      head_shape recent_only = head.shape;
      recent_only.num_quantized = 0;
      const auto tail = [&](const std::vector<half_bits>& x) {
        return std::vector<half_bits>(x.end() - recent * head_dim, x.end());
      };
      const head_fixture alone(recent_only, head.q, tail(head.k), tail(head.v));
      check_same_states(states_of(head), merged(states_of(slice(head, 0, 1040)), states_of(alone)));
    }
  });
}

// The recent part is the same for every format.
BOOST_AUTO_TEST_CASE(recent_tokens_do_not_know_the_format) {
  const auto run = [](spec::format_id format) {
    return decode_attention(random_head({format, 128, 4, 0, 100}, 11).input());
  };
  BOOST_TEST(same_bits(run(spec::format_id::k8v4), run(spec::format_id::k4v2)));
  BOOST_TEST(same_bits(run(spec::format_id::k8v4), run(spec::format_id::int2_g16)));
}

BOOST_AUTO_TEST_CASE(query_heads_do_not_see_each_other) {
  for_each_format([](spec::format_id format, int head_dim) {
    const head_fixture all = random_head({format, head_dim, 8, 144, 5}, 12);
    const decode_output together = decode_attention(all.input());
    const auto width = static_cast<std::size_t>(head_dim);
    for (std::size_t g = 0; g < 8; ++g) {
      head_shape shape = all.shape;
      shape.gqa_ratio = 1;
      const auto begin = all.q.begin() + static_cast<std::ptrdiff_t>(g * width);
      const head_fixture one(shape, {begin, begin + head_dim}, all.k, all.v);
      const decode_output alone = decode_attention(one.input());
      BOOST_TEST(
          (bits_of(alone.out) == bits_of(std::span(together.out).subspan(g * width, width))));
      BOOST_TEST((bits_of(alone.state) == bits_of(std::span(together.state).subspan(2 * g, 2))));
      for (std::size_t t = 0; t < alone.scores.size(); ++t) {
        BOOST_REQUIRE(std::bit_cast<std::uint32_t>(alone.scores[t]) ==
                      std::bit_cast<std::uint32_t>(together.scores[8 * t + g]));
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(many_heads_equal_single_heads_for_any_number_of_threads) {
  std::vector<head_fixture> heads;
  for (std::uint64_t i = 0; i < 9; ++i) {
    const auto tokens = static_cast<std::int64_t>(16 * (i + 1));
    heads.push_back(random_head({all_formats[i % 3], i % 2 ? 64 : 128, static_cast<int>(i % 8) + 1,
                                 tokens, static_cast<std::int64_t>(7 * i)},
                                i));
  }
  std::vector<decode_input> inputs;
  for (const head_fixture& head : heads) inputs.push_back(head.input());
  const int old_threads = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    const std::vector<decode_output> outputs = decode_attention(inputs);
    BOOST_REQUIRE_EQUAL(outputs.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      BOOST_TEST(same_bits(outputs[i], decode_attention(inputs[i])));
    }
  }
  omp_set_num_threads(old_threads);
  BOOST_TEST(decode_attention(std::span<const decode_input>{}).empty());
}

// Finite garbage in the slots behind the end: scores are masked and p is 0, so nothing of it is
// seen.
BOOST_AUTO_TEST_CASE(finite_garbage_behind_the_end_is_not_seen) {
  for_each_format([](spec::format_id format, int head_dim) {
    for (const std::int64_t tokens : {16, 48, 80, 112}) {  // in either page of a block of k8v4
      const head_fixture clean = random_head({format, head_dim, 3, tokens, 0}, 13);
      head_fixture dirty = clean;
      tests::seeded_values random(14);
      const std::int64_t slots = spec::pages_for_tokens(spec::format_of(format), tokens) *
                                     spec::format_of(format).tokens_per_page -
                                 tokens;
      append_tokens(spec::format_of(format), head_dim, random.normal_halves(slots * head_dim, 100),
                    random.normal_halves(slots * head_dim, 100), tokens, dirty.pool.writable());
      BOOST_TEST((clean.pool.bytes != dirty.pool.bytes));
      BOOST_TEST(same_bits(decode_attention(clean.input()), decode_attention(dirty.input())));
    }
  });
}

// Whatever lies behind the content of a page: NaN as halves, as codes the largest.
BOOST_AUTO_TEST_CASE(bytes_behind_the_content_are_not_seen) {
  for (const int head_dim : {64, 128}) {
    head_fixture head = random_head({spec::format_id::k8v4, head_dim, 3, 80, 5, 70}, 19);
    BOOST_REQUIRE(head.pool.unused().size() == 3u * 256);
    head.pool.fill_unused(std::byte{0x00});
    const decode_output clean = decode_attention(head.input());
    head.pool.fill_unused(std::byte{0xff});
    const page_pool before = head.pool;
    BOOST_TEST(same_bits(clean, decode_attention(head.input())));
    BOOST_TEST((head.pool.bytes == before.bytes));
  }
}

// A NaN of a key reaches everything; a NaN of a value reaches the channels that share its scale.
BOOST_AUTO_TEST_CASE(nan_in_the_cache_reaches_the_output) {
  for_each_format([](spec::format_id format, int head_dim) {
    const bool by_group = spec::format_of(format).scales == spec::scale_layout::group16;
    for (const std::int64_t token : {0, 70, 143}) {
      head_fixture head = random_head({format, head_dim, 2, 144, 10}, 15);
      std::vector<half_bits> k = head.k;
      k[static_cast<std::size_t>(token * head_dim + 20)] = 0x7e00;
      const decode_output by_key =
          decode_attention(head_fixture(head.shape, head.q, k, head.v).input());
      BOOST_TEST(std::ranges::all_of(by_key.out, [](float x) { return std::isnan(x); }));
      BOOST_TEST(std::isnan(by_key.state[1]));
      BOOST_TEST(!std::isnan(by_key.state[0]));
      // The scores of the tokens that share its scale, and no others.
      for (std::size_t i = 0; i < by_key.scores.size(); ++i) {
        const auto t = static_cast<std::int64_t>(i / 2);
        const bool shares = by_group ? t / 16 == token / 16 && t < 144 : t == token;
        BOOST_REQUIRE(std::isnan(by_key.scores[i]) == shares);
      }

      // A zero query does not hide it.
      const std::vector<half_bits> zero_query(head.q.size(), half_bits{0});
      const decode_output by_zero_query =
          decode_attention(head_fixture(head.shape, zero_query, k, head.v).input());
      BOOST_TEST(std::isnan(by_zero_query.scores[static_cast<std::size_t>(2 * token)]));
      BOOST_TEST(std::ranges::all_of(by_zero_query.out, [](float x) { return std::isnan(x); }));

      std::vector<half_bits> v = head.v;
      v[static_cast<std::size_t>(token * head_dim + 20)] = 0x7c00;
      const decode_output by_value =
          decode_attention(head_fixture(head.shape, head.q, head.k, v).input());
      for (std::size_t i = 0; i < by_value.out.size(); ++i) {
        const std::size_t channel = i % static_cast<std::size_t>(head_dim);
        BOOST_TEST(std::isnan(by_value.out[i]) == (!by_group || channel / 16 == 1));
      }
      BOOST_TEST(!std::isnan(by_value.state[1]));
    }
  });
}

BOOST_AUTO_TEST_CASE(architectures_differ) {
  const head_fixture head = random_head({spec::format_id::k8v4, 128, 4, 128, 0}, 16);
  BOOST_TEST(!same_bits(decode_attention(head.input(), architecture::sm_90),
                        decode_attention(head.input(), architecture::sm_80)));
}

BOOST_AUTO_TEST_CASE(shapes_outside_the_contract_are_refused) {
  const head_fixture head = random_head({spec::format_id::int2_g16, 64, 2, 80, 3}, 17);
  const decode_input good = head.input();
  BOOST_CHECK_NO_THROW(static_cast<void>(decode_attention(good)));
  const auto refuses = [&](const auto& change) {
    decode_input bad = good;
    change(bad);
    BOOST_CHECK_THROW(static_cast<void>(decode_attention(bad)), spec::contract_error);
    const std::vector<decode_input> many = {good, bad};
    BOOST_CHECK_THROW(static_cast<void>(decode_attention(many)), spec::contract_error);
  };
  refuses([](decode_input& in) { in.format = static_cast<spec::format_id>(3); });
  refuses([](decode_input& in) { in.format = spec::format_id::k8v4; });  // other page size
  refuses([](decode_input& in) { in.num_low = 1, in.low_pages = in.pages; });
  refuses([](decode_input& in) { in.num_low = 64, in.low_pages = in.pages; });
  refuses([](decode_input& in) { in.head_dim = 96; });
  refuses([](decode_input& in) { in.head_dim = 128; });
  refuses([](decode_input& in) { in.gqa_ratio = 0; });
  refuses([](decode_input& in) { in.gqa_ratio = 9; });
  refuses([](decode_input& in) { in.gqa_ratio = 3; });
  refuses([](decode_input& in) { in.num_quantized = 79; });
  refuses([](decode_input& in) { in.num_quantized = 144; });
  refuses([](decode_input& in) { in.num_quantized = -16; });
  refuses([](decode_input& in) { in.num_recent = 4; });
  refuses([](decode_input& in) { in.num_recent = -3; });
  refuses([](decode_input& in) { in.recent_v = in.recent_v.first(64); });
  refuses([](decode_input& in) { in.softmax_scale = std::numeric_limits<float>::infinity(); });
}

BOOST_AUTO_TEST_SUITE_END()
