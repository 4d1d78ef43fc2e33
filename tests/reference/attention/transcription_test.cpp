// decode_attention.md once more, for one query and one MMA step at a time, from the unpacked cache
// and the scalar tensor-core model. The library works on whole pages and eight queries at once; the
// bits must be the same. Scores come from plain_scores.hpp, nothing comes from the library.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "reference/attention/decode_attention.hpp"
#include "reference/formats/code_operands.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core.hpp"
#include "tests/reference/attention/head_fixture.hpp"
#include "tests/reference/attention/plain_scores.hpp"
#include "tests/reference/formats/golden_blocks.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::head_fixture;
using tests::random_head;

namespace {

struct part {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  std::vector<float> o;
};

void merge_into(std::optional<part>& total, const part& next) {
  if (!total) {
    total = next;
    return;
  }
  const float n = std::max(total->m, next.m);
  const float a = ex2_approx(total->m - n);
  const float b = ex2_approx(next.m - n);
  total->l = std::fma(total->l, a, next.l * b);
  for (std::size_t i = 0; i < next.o.size(); ++i) {
    total->o[i] = std::fma(total->o[i], a, next.o[i] * b);
  }
  total->m = n;
}

// One k16 step: c + sum over the 16 tokens of a tile of a(tt) * b[tt].
template <typename Operand>
float tile_step(float c, const Operand& a, const std::array<half_bits, 16>& b) {
  std::array<half_bits, 16> row;
  for (int tt = 0; tt < 16; ++tt) row[static_cast<std::size_t>(tt)] = a(tt);
  return mma_dot(row, b, c, architecture::sm_90);
}

half_bits one(int) { return 0x3c00; }

// A quantized part, unpacked: all slots of its blocks of 64. Those of a page that does not exist
// are zero, like the slots of a page behind the end.
struct stored_part {
  const spec::kv_format& format;
  std::int64_t first, end;  // positions
  unpacked_tokens tokens;
};

class transcription {
 public:
  transcription(const head_fixture& head, std::size_t query)
      : head_(head), query_(query), scores_(tests::plain_scores(head, query)) {
    const tests::head_shape& shape = head.shape;
    add_part(shape.format, 0, shape.num_quantized, head.pool);
    add_part(spec::format_id::k4v2, shape.num_quantized, shape.num_low, head.low_pool);
  }

  part run() {
    std::optional<part> total;
    for (const stored_part& stored : parts_) {
      const std::int64_t n = stored.end - stored.first;
      const std::int64_t split_blocks = n <= 8192 ? 16 : 32;
      const std::int64_t blocks = (n + 63) / 64;
      for (std::int64_t split = 0; split < blocks; split += split_blocks) {
        std::optional<part> sum;
        for (std::int64_t w = 0; w < 4 && split + w < blocks; ++w) {
          std::vector<std::int64_t> strand;
          for (std::int64_t b = split + w; b < std::min(split + split_blocks, blocks); b += 4) {
            strand.push_back(b);
          }
          merge_into(sum, stored.format.scales == spec::scale_layout::per_token
                              ? per_token(stored, strand)
                              : group16(stored, strand));
        }
        merge_into(total, *sum);
      }
    }
    std::optional<part> sum;
    const std::int64_t blocks = (head_.shape.num_recent + 31) / 32;
    for (std::int64_t w = 0; w < 4 && w < blocks; ++w) merge_into(sum, recent(w, blocks));
    if (sum) merge_into(total, *sum);
    return *total;
  }

 private:
  static constexpr float inf = std::numeric_limits<float>::infinity();

  void add_part(spec::format_id id, std::int64_t first, std::int64_t n,
                const tests::page_pool& pool) {
    const std::int64_t page_tokens = id == spec::format_id::k8v4 ? 32 : 64;
    const std::int64_t slots = (n + page_tokens - 1) / page_tokens * page_tokens;
    const spec::kv_format& format = spec::format_of(id);
    unpacked_tokens tokens = unpack_tokens(format, head_.shape.head_dim, slots, pool.readable());
    if (slots % 64 != 0) {  // half a block of k8v4; the keys are those of plain_scores
      tokens.value_codes.resize(static_cast<std::size_t>(slots + 32) * width());
      tokens.value_scales.resize(static_cast<std::size_t>(slots + 32));
      tokens.value_zeros.resize(static_cast<std::size_t>(slots + 32));
    }
    parts_.push_back({format, first, first + n, std::move(tokens)});
  }

  std::size_t width() const { return static_cast<std::size_t>(head_.shape.head_dim); }

  float score(std::int64_t position, std::int64_t end) const {
    return position < end ? scores_[static_cast<std::size_t>(position)] : -inf;
  }

  // V^ of a channel as operand over the tokens of the tile that starts at slot `first` of the part.
  auto value_codes(const stored_part& stored, std::int64_t first, std::size_t channel) const {
    const int shift = 24 - exponent(stored, channel);
    return [=, this, &stored](int tt) {
      const auto token = static_cast<std::size_t>(first + tt);
      return static_cast<half_bits>(stored.tokens.value_codes[token * width() + channel] << shift);
    };
  }
  int exponent(const stored_part& stored, std::size_t channel) const {
    return operand_exponent(stored.format, head_.shape.head_dim, kv_side::value,
                            static_cast<int>(channel / 16));
  }

  part per_token(const stored_part& stored, const std::vector<std::int64_t>& blocks) const {
    const float mid = static_cast<float>((1 << stored.format.value_bits) - 1) / 2;
    part result;
    std::array<float, 8> l = {};
    std::array<float, 8> z = {};
    float zc = 0;
    result.o.assign(width(), 0.0f);
    for (const std::int64_t block : blocks) {
      raise_maximum(result, stored.first + 64 * block, 64, stored.end, [&](float f) {
        for (float& x : l) x *= f;
        for (float& x : z) x *= f;
        zc *= f;
      });
      for (std::int64_t first = 64 * block; first < 64 * block + 64; first += 16) {
        std::array<half_bits, 16> weights = {};
        for (std::size_t lane = 0; lane < 16; ++lane) {
          const std::size_t t = static_cast<std::size_t>(first) + lane;
          const float vs = half_to_float(stored.tokens.value_scales[t]);
          const float vz = half_to_float(stored.tokens.value_zeros[t]);
          const float p =
              ex2_approx(score(stored.first + static_cast<std::int64_t>(t), stored.end) - result.m);
          l[lane % 8] = l[lane % 8] + p;  // lane, then lane + 8
          z[lane % 8] = std::fma(p, std::fma(vs, mid, vz), z[lane % 8]);
          weights[lane] = float_to_half(p * vs);
        }
        zc = tile_step(zc, one, weights);
        for (std::size_t channel = 0; channel < width(); ++channel) {
          result.o[channel] =
              tile_step(result.o[channel], value_codes(stored, first, channel), weights);
        }
      }
    }
    const auto sum = [](const std::array<float, 8>& x) {
      return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    };
    result.l = sum(l);
    const float y = std::fma(-mid, zc, sum(z));
    for (std::size_t channel = 0; channel < width(); ++channel) {
      result.o[channel] =
          std::fma(result.o[channel], std::ldexp(1.0f, exponent(stored, channel)), y);
    }
    return result;
  }

  part group16(const stored_part& stored, const std::vector<std::int64_t>& blocks) const {
    const std::size_t groups = width() / 16;
    part result;
    std::vector<float> zc(groups, 0.0f);
    result.o.assign(width(), 0.0f);
    for (const std::int64_t block : blocks) {
      raise_maximum(result, stored.first + 64 * block, 64, stored.end, [&](float f) {
        result.l *= f;
        for (float& x : zc) x *= f;
      });
      for (std::int64_t first = 64 * block; first < 64 * block + 64; first += 16) {
        const std::array<half_bits, 16> p = rounded_p(stored.first + first, stored.end, result.m);
        result.l = tile_step(result.l, one, p);
        for (std::size_t j = 0; j < groups; ++j) {
          const auto group = [&](int tt) {
            return static_cast<std::size_t>(first + tt) * groups + j;
          };
          zc[j] = tile_step(
              zc[j], [&](int tt) { return stored.tokens.value_zeros[group(tt)]; }, p);
          std::array<half_bits, 16> weights = {};
          for (int tt = 0; tt < 16; ++tt) {
            const auto i = static_cast<std::size_t>(tt);
            weights[i] = float_to_half(half_to_float(p[i]) *
                                       half_to_float(stored.tokens.value_scales[group(tt)]));
          }
          for (std::size_t channel = 16 * j; channel < 16 * j + 16; ++channel) {
            result.o[channel] =
                tile_step(result.o[channel], value_codes(stored, first, channel), weights);
          }
        }
      }
    }
    for (std::size_t channel = 0; channel < width(); ++channel) {
      result.o[channel] = std::fma(result.o[channel], std::ldexp(1.0f, exponent(stored, channel)),
                                   zc[channel / 16]);
    }
    return result;
  }

  part recent(std::int64_t strand, std::int64_t blocks) const {
    const std::int64_t nq = head_.shape.num_quantized + head_.shape.num_low;
    const std::int64_t end = nq + head_.shape.num_recent;
    part result;
    result.o.assign(width(), 0.0f);
    for (std::int64_t block = strand; block < blocks; block += 4) {
      raise_maximum(result, nq + 32 * block, 32, end, [&](float f) { result.l *= f; });
      for (std::int64_t first = nq + 32 * block; first < nq + 32 * block + 32; first += 16) {
        const std::array<half_bits, 16> p = rounded_p(first, end, result.m);
        result.l = tile_step(result.l, one, p);
        for (std::size_t channel = 0; channel < width(); ++channel) {
          const auto value = [&](int tt) {
            const auto token = static_cast<std::size_t>(first + tt);
            return first + tt < end ? head_.v[token * width() + channel] : half_bits{0};
          };
          result.o[channel] = tile_step(result.o[channel], value, p);
        }
      }
    }
    return result;
  }

  // Rescales result.o and what the caller adds, if the block has a larger score.
  template <typename Rescale>
  void raise_maximum(part& result, std::int64_t first, std::int64_t count, std::int64_t end,
                     const Rescale& rescale) const {
    float x = -inf;
    for (std::int64_t t = first; t < first + count; ++t) x = std::max(x, score(t, end));
    if (!(x > result.m)) return;
    const float f = ex2_approx(result.m - x);
    result.m = x;
    for (float& o : result.o) o *= f;
    rescale(f);
  }

  std::array<half_bits, 16> rounded_p(std::int64_t first, std::int64_t end, float m) const {
    std::array<half_bits, 16> p = {};
    for (int tt = 0; tt < 16; ++tt) {
      p[static_cast<std::size_t>(tt)] = float_to_half(ex2_approx(score(first + tt, end) - m));
    }
    return p;
  }

  const head_fixture& head_;
  std::size_t query_;
  std::vector<float> scores_;  // of the query, by position
  std::vector<stored_part> parts_;
};

void check_transcription(const tests::head_shape& shape, double sharpness) {
  BOOST_TEST_CONTEXT(spec::format_of(shape.format).name
                     << " head_dim " << shape.head_dim << " tokens " << shape.num_quantized << " + "
                     << shape.num_low << " + " << shape.num_recent << " sharpness " << sharpness) {
    const head_fixture head = random_head(shape, 31, sharpness);
    const decode_output output = decode_attention(head.input());
    const std::size_t query = static_cast<std::size_t>(shape.gqa_ratio) - 1;
    const part expected = transcription(head, query).run();
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    const std::vector<float> scores = tests::plain_scores(head, query);
    std::size_t different_scores = 0;
    for (std::size_t t = 0; t < scores.size(); ++t) {
      different_scores +=
          !same(output.scores[t * static_cast<std::size_t>(shape.gqa_ratio) + query], scores[t]);
    }
    BOOST_TEST(different_scores == 0u);
    BOOST_TEST(same(output.state[2 * query], expected.m));
    BOOST_TEST(same(output.state[2 * query + 1], expected.l));
    std::size_t mismatches = 0;
    const auto width = static_cast<std::size_t>(shape.head_dim);
    for (std::size_t channel = 0; channel < width; ++channel) {
      mismatches += !same(output.out[query * width + channel], expected.o[channel] / expected.l);
    }
    BOOST_TEST(mismatches == 0u);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transcription_of_the_page)

BOOST_AUTO_TEST_CASE(equals_the_library_bit_for_bit) {
  for (const spec::format_id format :
       {spec::format_id::int2_g16, spec::format_id::k8v4, spec::format_id::k4v2}) {
    for (const int head_dim : {64, 128}) {
      for (const double sharpness : {0.1, 1.0, 4.0}) {
        check_transcription({format, head_dim, 3, 576, 0}, sharpness);
        check_transcription({format, head_dim, 8, 1104, 70}, sharpness);
        check_transcription({format, head_dim, 1, 0, 200}, sharpness);
      }
    }
  }
  for (const spec::format_id format :
       {spec::format_id::int2_g16, spec::format_id::k8v4, spec::format_id::k4v2}) {
    for (const int tokens :
         {1,   16,  31,  32,  33,  48,  63,   64,   65,   80,   95,   96,   97,   127,  128,
          129, 256, 287, 288, 289, 992, 1023, 1024, 1025, 1040, 1056, 1057, 8192, 8193, 8208}) {
      if (tokens % spec::format_of(format).token_granularity != 0) continue;
      check_transcription({format, 64, 1, tokens, 3}, 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_tiers_equal_the_library_bit_for_bit) {
  for (const int head_dim : {64, 128}) {
    for (const double sharpness : {0.1, 1.0, 4.0}) {
      for (const auto& [high, low, recent] : {std::array{33, 65, 0},
                                              {31, 200, 33},
                                              {0, 130, 5},
                                              {160, 0, 70},
                                              {1100, 1090, 70},
                                              {32, 1, 3},
                                              {63, 64, 0},
                                              {64, 63, 1},
                                              {65, 33, 0},
                                              {95, 32, 0},
                                              {96, 65, 3},
                                              {97, 31, 0}}) {
        check_transcription({spec::format_id::k8v4, head_dim, 3, high, recent, low}, sharpness);
      }
    }
  }
  // Each tier has splits of its own length.
  check_transcription({spec::format_id::k8v4, 64, 1, 8193, 3, 1025}, 1);
  check_transcription({spec::format_id::k8v4, 64, 1, 1025, 3, 8193}, 1);
}

// The vector of reference/spec/golden_vectors.md section 6, every line of it.
BOOST_AUTO_TEST_CASE(golden_scores) {
  const auto blocks = tests::read_blocks("reference/spec/golden_vectors.md", "scores");
  BOOST_REQUIRE(blocks.size() == 1u);
  const tests::fenced_block& block = blocks[0];
  const int head_dim = 64;
  std::vector<half_bits> q(64), k(16 * 64);
  for (const tests::line_words& line : block) {
    if (line[0] == "q") q.at(std::stoul(line[1])) = static_cast<half_bits>(tests::hex(line[2]));
    if (line[0] == "k") {
      k.at(std::stoul(line[1]) * 64 + std::stoul(line[2])) =
          static_cast<half_bits>(tests::hex(line[3]));
    }
  }
  head_fixture head({spec::format_id::int2_g16, head_dim, 1, 16, 0}, q, k, k);
  head.softmax_scale =
      std::bit_cast<float>(tests::hex(tests::values_of(block, "softmax_scale").at(0)));
  const tests::group16_tile tile = tests::group16_tiles(head, 0).at(0);
  const auto check = [&](const char* name, float value) {
    BOOST_TEST(tests::bits_of(value) == tests::hex(tests::values_of(block, name).at(0)), name);
  };
  check("zk", tile.zk);
  check("zs", tile.zs);
  check("sb", tile.sb);
  check("mid", tile.mid);
  const tests::line_words expected = tests::values_of(block, "s");
  const decode_output output = decode_attention(head.input());
  BOOST_REQUIRE(expected.size() == 16u);
  for (std::size_t t = 0; t < 16; ++t) {
    BOOST_TEST(tests::bits_of(tile.s[t]) == tests::hex(expected[t]), "token " << t);
    BOOST_TEST(tests::bits_of(output.scores[t]) == tests::hex(expected[t]), "token " << t);
  }
}

BOOST_AUTO_TEST_SUITE_END()
