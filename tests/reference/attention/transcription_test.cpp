// decode_attention.md once more, for one query and one MMA step at a time, from the unpacked cache
// and the scalar tensor-core model. The library works on whole pages and eight queries at once; the
// bits must be the same. Scores of per-token formats come from per_token_scores.hpp; those of
// int2_g16 and of the recent part are taken from the library: decode_attention_test.cpp checks
// them.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/attention/decode_attention.hpp"
#include "reference/formats/code_operands.hpp"
#include "reference/numerics/ex2.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core.hpp"
#include "tests/reference/attention/head_fixture.hpp"
#include "tests/reference/attention/per_token_scores.hpp"

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

class transcription {
 public:
  transcription(const head_fixture& head, std::size_t query)
      : head_(head),
        query_(query),
        format_(spec::format_of(head.shape.format)),
        scores_(decode_attention(head.input()).scores),
        tokens_(unpack_tokens(format_, head.shape.head_dim, slots(), head.pool.readable())) {
    if (format_.scales != spec::scale_layout::per_token) return;
    const std::vector<float> own = tests::per_token_scores(head, query);
    for (std::size_t t = 0; t < own.size(); ++t) {
      scores_[t * static_cast<std::size_t>(head.shape.gqa_ratio) + query] = own[t];
    }
  }

  part run() {
    const std::int64_t nq = head_.shape.num_quantized;
    const std::int64_t split_pages = (nq <= 8192 ? 1024 : 2048) / 64;
    const std::int64_t pages = (nq + 63) / 64;
    std::optional<part> total;
    for (std::int64_t split = 0; split < pages; split += split_pages) {
      std::optional<part> sum;
      for (std::int64_t w = 0; w < 4 && split + w < pages; ++w) {
        std::vector<std::int64_t> strand;
        for (std::int64_t p = split + w; p < std::min(split + split_pages, pages); p += 4) {
          strand.push_back(p);
        }
        merge_into(sum, format_.scales == spec::scale_layout::per_token ? per_token(strand)
                                                                        : group16(strand));
      }
      merge_into(total, *sum);
    }
    std::optional<part> sum;
    const std::int64_t blocks = (head_.shape.num_recent + 31) / 32;
    for (std::int64_t w = 0; w < 4 && w < blocks; ++w) merge_into(sum, recent(w, blocks));
    if (sum) merge_into(total, *sum);
    return *total;
  }

 private:
  static constexpr float inf = std::numeric_limits<float>::infinity();

  std::int64_t slots() const { return (head_.shape.num_quantized + 63) / 64 * 64; }
  std::size_t width() const { return static_cast<std::size_t>(head_.shape.head_dim); }

  float score(std::int64_t position, std::int64_t end) const {
    const auto i = static_cast<std::size_t>(position * head_.shape.gqa_ratio) + query_;
    return position < end ? scores_[i] : -inf;
  }

  // V^ of a channel as operand over the tokens of the tile that starts at `first`.
  auto value_codes(std::int64_t first, std::size_t channel) const {
    const int shift = 24 - exponent(channel);
    return [=, this](int tt) {
      const auto token = static_cast<std::size_t>(first + tt);
      return static_cast<half_bits>(tokens_.value_codes[token * width() + channel] << shift);
    };
  }
  int exponent(std::size_t channel) const {
    return operand_exponent(format_, head_.shape.head_dim, kv_side::value,
                            static_cast<int>(channel / 16));
  }

  part per_token(const std::vector<std::int64_t>& pages) const {
    const float mid = static_cast<float>((1 << format_.value_bits) - 1) / 2;
    part result;
    std::array<float, 8> l = {};
    std::array<float, 8> z = {};
    float zc = 0;
    result.o.assign(width(), 0.0f);
    for (const std::int64_t page : pages) {
      raise_maximum(result, 64 * page, 64, head_.shape.num_quantized, [&](float f) {
        for (float& x : l) x *= f;
        for (float& x : z) x *= f;
        zc *= f;
      });
      for (std::int64_t first = 64 * page; first < 64 * page + 64; first += 16) {
        std::array<half_bits, 16> weights = {};
        for (std::size_t lane = 0; lane < 16; ++lane) {
          const std::size_t t = static_cast<std::size_t>(first) + lane;
          const float vs = half_to_float(tokens_.value_scales[t]);
          const float vz = half_to_float(tokens_.value_zeros[t]);
          const float p =
              ex2_approx(score(static_cast<std::int64_t>(t), head_.shape.num_quantized) - result.m);
          l[lane % 8] = l[lane % 8] + p;  // lane, then lane + 8
          z[lane % 8] = std::fma(p, std::fma(vs, mid, vz), z[lane % 8]);
          weights[lane] = float_to_half(p * vs);
        }
        zc = tile_step(zc, one, weights);
        for (std::size_t channel = 0; channel < width(); ++channel) {
          result.o[channel] = tile_step(result.o[channel], value_codes(first, channel), weights);
        }
      }
    }
    const auto sum = [](const std::array<float, 8>& x) {
      return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    };
    result.l = sum(l);
    const float y = std::fma(-mid, zc, sum(z));
    for (std::size_t channel = 0; channel < width(); ++channel) {
      result.o[channel] = std::fma(result.o[channel], std::ldexp(1.0f, exponent(channel)), y);
    }
    return result;
  }

  part group16(const std::vector<std::int64_t>& pages) const {
    const std::size_t groups = width() / 16;
    part result;
    std::vector<float> zc(groups, 0.0f);
    result.o.assign(width(), 0.0f);
    for (const std::int64_t page : pages) {
      raise_maximum(result, 64 * page, 64, head_.shape.num_quantized, [&](float f) {
        result.l *= f;
        for (float& x : zc) x *= f;
      });
      for (std::int64_t first = 64 * page; first < 64 * page + 64; first += 16) {
        const std::array<half_bits, 16> p = rounded_p(first, head_.shape.num_quantized, result.m);
        result.l = tile_step(result.l, one, p);
        for (std::size_t j = 0; j < groups; ++j) {
          const auto group = [&](int tt) {
            return static_cast<std::size_t>(first + tt) * groups + j;
          };
          zc[j] = tile_step(
              zc[j], [&](int tt) { return tokens_.value_zeros[group(tt)]; }, p);
          std::array<half_bits, 16> weights = {};
          for (int tt = 0; tt < 16; ++tt) {
            const auto i = static_cast<std::size_t>(tt);
            weights[i] =
                float_to_half(half_to_float(p[i]) * half_to_float(tokens_.value_scales[group(tt)]));
          }
          for (std::size_t channel = 16 * j; channel < 16 * j + 16; ++channel) {
            result.o[channel] = tile_step(result.o[channel], value_codes(first, channel), weights);
          }
        }
      }
    }
    for (std::size_t channel = 0; channel < width(); ++channel) {
      result.o[channel] =
          std::fma(result.o[channel], std::ldexp(1.0f, exponent(channel)), zc[channel / 16]);
    }
    return result;
  }

  part recent(std::int64_t strand, std::int64_t blocks) const {
    const std::int64_t nq = head_.shape.num_quantized;
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
  void raise_maximum(part& result, std::int64_t first, int count, std::int64_t end,
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
  const spec::kv_format& format_;
  std::vector<float> scores_;
  unpacked_tokens tokens_;
};

void check_transcription(const tests::head_shape& shape, double sharpness) {
  BOOST_TEST_CONTEXT(spec::format_of(shape.format).name
                     << " head_dim " << shape.head_dim << " tokens " << shape.num_quantized << " + "
                     << shape.num_recent << " sharpness " << sharpness) {
    const head_fixture head = random_head(shape, 31, sharpness);
    const decode_output output = decode_attention(head.input());
    const std::size_t query = static_cast<std::size_t>(shape.gqa_ratio) - 1;
    const part expected = transcription(head, query).run();
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
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
  check_transcription({spec::format_id::k4v2, 64, 1, 8200, 3}, 1);
}

BOOST_AUTO_TEST_SUITE_END()
