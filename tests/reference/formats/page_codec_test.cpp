#include "reference/formats/page_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "reference/formats/code_operands.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"
#include "tests/reference/formats/page_pool.hpp"
#include "tests/reference/formats/seeded_values.hpp"

using namespace kvproof;
using namespace kvproof::reference;
using tests::page_pool;
using tests::seeded_values;

namespace {

struct rows {
  std::vector<half_bits> k, v;  // [tokens][head_dim]
};

rows random_rows(std::uint64_t seed, std::int64_t tokens, int head_dim) {
  seeded_values random(seed);
  return {random.normal_halves(tokens * head_dim), random.normal_halves(tokens * head_dim)};
}

void append(const spec::kv_format& format, int head_dim, const rows& x, std::int64_t from,
            std::int64_t count, std::int64_t first, page_pool& pool) {
  const auto cut = [&](const std::vector<half_bits>& tensor) {
    return std::span(tensor).subspan(static_cast<std::size_t>(from * head_dim),
                                     static_cast<std::size_t>(count * head_dim));
  };
  append_tokens(format, head_dim, cut(x.k), cut(x.v), first, pool.writable());
}

template <typename Check>
void for_each_format(const Check& check) {
  for (const spec::kv_format& format : spec::kv_formats) {
    for (const int head_dim : {64, 128}) {
      BOOST_TEST_CONTEXT(format.name << " head_dim " << head_dim) { check(format, head_dim); }
    }
  }
}

// All items of an unpacked cache, each as an unsigned number: codes, then scales and zeros.
struct item_list {
  std::vector<std::uint32_t> values;
  std::vector<int> widths;           // bits
  std::vector<std::int64_t> tokens;  // the item's token, or the first of its tile
};

item_list items_of(const spec::kv_format& format, int head_dim, const unpacked_tokens& unpacked) {
  item_list items;
  const auto add = [&](const auto& list, int width, std::int64_t row_size, int tokens_per_row) {
    items.values.insert(items.values.end(), list.begin(), list.end());
    items.widths.insert(items.widths.end(), list.size(), width);
    for (std::int64_t i = 0; i < std::ssize(list); ++i) {
      items.tokens.push_back(i / row_size * tokens_per_row);
    }
  };
  add(unpacked.key_codes, format.key_bits, head_dim, 1);
  add(unpacked.value_codes, format.value_bits, head_dim, 1);
  const bool by_group = format.scales == spec::scale_layout::group16;
  for (const auto* list : {&unpacked.key_scales, &unpacked.key_zeros}) {
    add(*list, 16, by_group ? head_dim : 1, by_group ? 16 : 1);
  }
  for (const auto* list : {&unpacked.value_scales, &unpacked.value_zeros}) {
    add(*list, 16, by_group ? head_dim / 16 : 1, 1);
  }
  return items;
}

item_list items_of_page(const spec::kv_format& format, int head_dim, const page_pool& pool,
                        std::size_t page) {
  const std::vector<std::span<const std::byte>> one = {pool.bytes[page]};
  return items_of(format, head_dim, unpack_tokens(format, head_dim, format.tokens_per_page, one));
}

page_pool random_pool(std::uint64_t seed, const spec::kv_format& format, int head_dim,
                      std::int64_t num_pages) {
  seeded_values random(seed);
  page_pool pool(format, head_dim, num_pages);
  for (auto& page : pool.bytes) {
    for (std::byte& b : page) b = static_cast<std::byte>(random.next() & 0xff);
  }
  return pool;
}

// For each bit of each item, the bit of the page that it is read from. The page's bits are labelled
// with their own index, one binary digit a pass.
std::vector<std::vector<std::uint32_t>> sources_of_bits(const spec::kv_format& format,
                                                        int head_dim) {
  std::vector<std::vector<std::uint32_t>> sources;
  for (int digit = 0; digit < 17; ++digit) {
    page_pool pool(format, head_dim, 1, std::byte{0});
    for (std::size_t i = 0; i < pool.bytes[0].size() * 8; ++i) {
      if (i >> digit & 1) pool.bytes[0][i / 8] |= std::byte{1} << (i % 8);
    }
    const item_list items = items_of_page(format, head_dim, pool, 0);
    sources.resize(items.values.size());
    for (std::size_t item = 0; item < items.values.size(); ++item) {
      sources[item].resize(static_cast<std::size_t>(items.widths[item]));
      for (int bit = 0; bit < items.widths[item]; ++bit) {
        sources[item][bit] |= (items.values[item] >> bit & 1) << digit;
      }
    }
  }
  return sources;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(page_codec)

// The sizes of kv_formats.md section 3: T tokens, where the content ends, where the page ends.
BOOST_AUTO_TEST_CASE(sizes_are_those_of_the_table) {
  using spec::format_id;
  const auto check = [](format_id id, int tokens, std::array<int, 2> content,
                        std::array<int, 2> page) {
    const spec::kv_format& format = spec::format_of(id);
    BOOST_TEST(format.tokens_per_page == tokens);
    for (const std::size_t i : {0u, 1u}) {
      const int head_dim = i == 0 ? 128 : 64;
      BOOST_TEST(spec::page_content_bytes(format, head_dim) == content[i]);
      BOOST_TEST(spec::page_size_bytes(format, head_dim) == page[i]);
      BOOST_TEST(spec::page_size_bytes(format, head_dim) % spec::page_alignment_bytes == 0);
    }
    BOOST_TEST(spec::pages_for_tokens(format, 0) == 0);
    BOOST_TEST(spec::pages_for_tokens(format, tokens) == 1);
    BOOST_TEST(spec::pages_for_tokens(format, tokens + 1) == 2);
  };
  check(format_id::k8v4, 32, {6400, 3328}, {6656, 3584});
  check(format_id::k4v2, 64, {6656, 3584}, {6656, 3584});
  check(format_id::int2_g16, 64, {8192, 4096}, {8192, 4096});
}

BOOST_AUTO_TEST_CASE(every_bit_of_the_content_belongs_to_exactly_one_item) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const auto page_bits = static_cast<std::size_t>(spec::page_content_bytes(format, head_dim)) * 8;
    BOOST_REQUIRE(page_bits < 1u << 17);
    std::vector<int> uses(page_bits, 0);
    const auto sources = sources_of_bits(format, head_dim);
    for (const std::vector<std::uint32_t>& item : sources) {
      for (std::size_t bit = 0; bit < item.size(); ++bit) {
        BOOST_REQUIRE(item[bit] < page_bits);
        ++uses[item[bit]];
        if (item[bit] != item[0] + bit) BOOST_ERROR("bits of an item are not adjacent");
      }
      if (item[0] % item.size() != 0) BOOST_ERROR("an item is not aligned to its width");
    }
    BOOST_TEST(std::ranges::count(uses, 1) == static_cast<std::ptrdiff_t>(page_bits));
  });
}

BOOST_AUTO_TEST_CASE(regions_are_keys_then_values_then_scales) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const auto sources = sources_of_bits(format, head_dim);
    const std::uint32_t elements = static_cast<std::uint32_t>(format.tokens_per_page * head_dim);
    const std::uint32_t keys_end = elements * static_cast<std::uint32_t>(format.key_bits);
    const std::uint32_t values_end =
        keys_end + elements * static_cast<std::uint32_t>(format.value_bits);
    for (std::uint32_t item = 0; item < sources.size(); ++item) {
      const std::uint32_t bit = sources[item][0];
      const int region = bit < keys_end ? 0 : bit < values_end ? 1 : 2;
      BOOST_REQUIRE_EQUAL(region, item < elements ? 0 : item < 2 * elements ? 1 : 2);
    }
  });
}

// kv_formats.md section 3, the byte fragments, for every key code.
BOOST_AUTO_TEST_CASE(keys_of_8_and_4_bits_lie_in_byte_fragments) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    if (format.key_bits == 2) return;
    const auto sources = sources_of_bits(format, head_dim);
    for (int token = 0; token < format.tokens_per_page; ++token) {
      for (int channel = 0; channel < head_dim; ++channel) {
        const int tt = token % 16, c = channel % 32;
        const int w8 =
            (4 * (tt % 8) + c % 8 / 2) * 16 + (tt / 8 + c / 16 * 2) * 4 + c / 8 % 2 * 2 + c % 2;
        const int u = token / 16 * (head_dim / 32) + channel / 32;
        const int bit =
            format.key_bits == 8 ? 8 * (512 * u + w8) : 8 * (512 * (u / 2) + w8) + 4 * (u % 2);
        BOOST_REQUIRE_EQUAL(sources[static_cast<std::size_t>(token * head_dim + channel)][0], bit);
      }
    }
  });
}

// Zero 0 and scale 1 in every group, so each element is its own code: packing is an identity.
BOOST_AUTO_TEST_CASE(random_codes_survive_packing) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const std::int64_t tokens = 144;
    seeded_values random(7);
    const auto random_codes = [&](int bits, bool along_tokens) {
      std::vector<half_bits> x(static_cast<std::size_t>(tokens * head_dim));
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t channel = 0; channel < head_dim; ++channel) {
          const std::int64_t place = (along_tokens ? t : channel) % spec::group_size;
          const std::int64_t max_code = (1 << bits) - 1;
          const std::int64_t code = place == 3    ? 0
                                    : place == 12 ? max_code
                                                  : random.below(max_code + 1);
          x[static_cast<std::size_t>(t * head_dim + channel)] =
              float_to_half(static_cast<float>(code));
        }
      }
      return x;
    };
    const bool by_group = format.scales == spec::scale_layout::group16;
    const rows x = {random_codes(format.key_bits, by_group),
                    random_codes(format.value_bits, false)};
    page_pool pool(format, head_dim, spec::pages_for_tokens(format, tokens));
    append(format, head_dim, x, 0, tokens, 0, pool);

    const unpacked_tokens tokens_read = unpack_tokens(format, head_dim, tokens, pool.readable());
    const auto decoded_equals = [](const std::vector<std::uint8_t>& codes,
                                   const std::vector<half_bits>& values) {
      return std::ranges::equal(codes, values, [](std::uint8_t code, half_bits h) {
        return static_cast<float>(code) == half_to_float(h);
      });
    };
    BOOST_TEST(decoded_equals(tokens_read.key_codes, x.k));
    BOOST_TEST(decoded_equals(tokens_read.value_codes, x.v));
    for (const auto* scales : {&tokens_read.key_scales, &tokens_read.value_scales}) {
      BOOST_TEST(std::ranges::count(*scales, 0x3c00) == std::ssize(*scales));
    }
    for (const auto* zeros : {&tokens_read.key_zeros, &tokens_read.value_zeros}) {
      BOOST_TEST(std::ranges::count(*zeros, 0) == std::ssize(*zeros));
    }
  });
}

// What is stored for each group is what quantize_group says about the elements that the format
// groups; keys of int2_g16 have a rule of their own.
BOOST_AUTO_TEST_CASE(stored_groups_are_quantized_groups) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const std::int64_t tokens = 80;
    const rows x = random_rows(11, tokens, head_dim);
    page_pool pool(format, head_dim, spec::pages_for_tokens(format, tokens));
    append(format, head_dim, x, 0, tokens, 0, pool);
    const unpacked_tokens read = unpack_tokens(format, head_dim, tokens, pool.readable());

    std::size_t mismatches = 0;
    const auto check = [&](const std::vector<half_bits>& values,
                           const std::vector<std::uint8_t>& codes, std::size_t first,
                           std::size_t stride, std::size_t size, int bits, half_bits scale,
                           half_bits zero, quantizer rule = quantizer::contract) {
      std::vector<half_bits> group;
      for (std::size_t i = 0; i < size; ++i) group.push_back(values[first + i * stride]);
      const quantized_group expected = quantize_group(group, bits, rule);
      mismatches += expected.scale != scale;
      mismatches += expected.zero != zero;
      for (std::size_t i = 0; i < size; ++i) {
        mismatches += expected.codes[i] != codes[first + i * stride];
      }
    };
    const auto width = static_cast<std::size_t>(head_dim);
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      if (format.scales == spec::scale_layout::per_token) {
        check(x.k, read.key_codes, t * width, 1, width, format.key_bits, read.key_scales[t],
              read.key_zeros[t]);
        check(x.v, read.value_codes, t * width, 1, width, format.value_bits, read.value_scales[t],
              read.value_zeros[t]);
        continue;
      }
      for (std::size_t channel = 0; channel < width && t % 16 == 0; ++channel) {
        const std::size_t g = t / 16 * width + channel;
        check(x.k, read.key_codes, t * width + channel, width, 16, 2, read.key_scales[g],
              read.key_zeros[g], quantizer::contract_group16_key);
      }
      for (std::size_t group = 0; group < width / 16; ++group) {
        const std::size_t g = t * (width / 16) + group;
        check(x.v, read.value_codes, t * width + 16 * group, 1, 16, 2, read.value_scales[g],
              read.value_zeros[g]);
      }
    }
    BOOST_TEST(mismatches == 0);
  });
}

BOOST_AUTO_TEST_CASE(bytes_do_not_depend_on_how_appends_are_cut) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const int step = format.token_granularity;
    const std::int64_t tokens = format.token_granularity == 1 ? 201 : 208;
    const rows x = random_rows(13, tokens, head_dim);
    page_pool whole(format, head_dim, spec::pages_for_tokens(format, tokens), std::byte{0x00});
    append(format, head_dim, x, 0, tokens, 0, whole);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      seeded_values random(seed);
      page_pool pieces(format, head_dim, spec::pages_for_tokens(format, tokens), std::byte{0xff});
      for (std::int64_t first = 0; first < tokens;) {
        const std::int64_t longest = seed % 2 ? 3 : 100;  // appends below and beyond a page
        const std::int64_t n = std::min(tokens - first, step * random.below(longest));
        append(format, head_dim, x, first, n, first, pieces);
        first += n;
      }
      BOOST_TEST((pieces.content() == whole.content()), "seed " << seed);
      const std::vector<std::byte> unused = pieces.unused();
      BOOST_TEST(std::ranges::count(unused, std::byte{0xff}) == std::ssize(unused));
    }
  });
}

BOOST_AUTO_TEST_CASE(only_bits_of_written_tokens_change) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const std::int64_t first = 16;
    const std::int64_t end = first + (format.token_granularity == 1 ? 3 : 16);
    const rows x = random_rows(18, end - first, head_dim);
    page_pool pool = random_pool(17, format, head_dim, 2);
    const page_pool before = pool;
    append(format, head_dim, x, 0, end - first, first, pool);
    page_pool other_pool = random_pool(24, format, head_dim, 2);
    append(format, head_dim, x, 0, end - first, first, other_pool);
    BOOST_TEST((pool.bytes[0] != before.bytes[0]));
    BOOST_TEST((pool.bytes[1] == before.bytes[1]));
    BOOST_TEST((pool.unused() == before.unused()));

    // Every bit of the content belongs to one item, so it is enough that the other tokens' items
    // are the same.
    const item_list old_items = items_of_page(format, head_dim, before, 0);
    const item_list new_items = items_of_page(format, head_dim, pool, 0);
    const item_list other_items = items_of_page(format, head_dim, other_pool, 0);
    std::size_t mismatches = 0;
    for (std::size_t i = 0; i < old_items.values.size(); ++i) {
      const bool is_written = old_items.tokens[i] >= first && old_items.tokens[i] < end;
      // Written items do not depend on what the page held.
      mismatches += new_items.values[i] != (is_written ? other_items : old_items).values[i];
    }
    BOOST_TEST(mismatches == 0);
  });
}

BOOST_AUTO_TEST_CASE(slots_behind_the_end_are_zero_whatever_the_page_held) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    for (const std::int64_t tokens : {16, 32, 48, 64, 80}) {
      page_pool pool = random_pool(19, format, head_dim, 4);
      const page_pool before = pool;
      append(format, head_dim, random_rows(20, tokens, head_dim), 0, tokens, 0, pool);
      const std::int64_t last_page = (tokens - 1) / format.tokens_per_page;
      const std::int64_t end = tokens - last_page * format.tokens_per_page;
      const item_list items =
          items_of_page(format, head_dim, pool, static_cast<std::size_t>(last_page));
      std::size_t nonzero = 0;
      for (std::size_t i = 0; i < items.values.size(); ++i) {
        nonzero += items.tokens[i] >= end && items.values[i] != 0;
      }
      BOOST_TEST(nonzero == 0);
      for (std::size_t p = static_cast<std::size_t>(last_page) + 1; p < 4; ++p) {
        BOOST_TEST((pool.bytes[p] == before.bytes[p]));
      }
      BOOST_TEST((pool.unused() == before.unused()));
    }
  });
}

// Nothing of a cache is read from behind the content of its pages, and nothing else is written.
BOOST_AUTO_TEST_CASE(bytes_behind_the_content_are_neither_read_nor_written) {
  int formats_with_unused_bytes = 0;
  for_each_format([&](const spec::kv_format& format, int head_dim) {
    const std::int64_t tokens = 112;
    page_pool pool(format, head_dim, spec::pages_for_tokens(format, tokens), std::byte{0x7f});
    append(format, head_dim, random_rows(31, tokens, head_dim), 0, tokens, 0, pool);
    const std::vector<std::byte> unused = pool.unused();
    formats_with_unused_bytes += !unused.empty();
    BOOST_TEST(std::ranges::count(unused, std::byte{0x7f}) == std::ssize(unused));
    const item_list items =
        items_of(format, head_dim, unpack_tokens(format, head_dim, tokens, pool.readable()));
    const dequantized_tokens decoded = dequantize_tokens(format, head_dim, tokens, pool.readable());
    pool.fill_unused(std::byte{0xff});
    const item_list again =
        items_of(format, head_dim, unpack_tokens(format, head_dim, tokens, pool.readable()));
    const dequantized_tokens decoded_again =
        dequantize_tokens(format, head_dim, tokens, pool.readable());
    BOOST_TEST((items.values == again.values));
    BOOST_TEST((decoded.k == decoded_again.k));
    BOOST_TEST((decoded.v == decoded_again.v));
  });
  BOOST_TEST(formats_with_unused_bytes == 2);  // k8v4 at both head_dims
}

BOOST_AUTO_TEST_CASE(an_append_of_nothing_writes_nothing) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    page_pool pool = random_pool(21, format, head_dim, 1);
    const page_pool before = pool;
    append_tokens(format, head_dim, {}, {}, 0, pool.writable());
    append_tokens(format, head_dim, {}, {}, 16, pool.writable());
    append_tokens(format, head_dim, {}, {}, 128, {});
    BOOST_TEST((pool.bytes == before.bytes));
  });
}

// 16 tokens of 1 before 16 tokens of 100: no scale spans both, so both decode exactly.
BOOST_AUTO_TEST_CASE(groups_do_not_span_tiles) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const auto tile = static_cast<std::size_t>(16 * head_dim);
    std::vector<half_bits> x(2 * tile, 0x3c00);
    std::fill(x.begin() + static_cast<std::ptrdiff_t>(tile), x.end(), half_bits{0x5640});
    page_pool pool(format, head_dim, 1);
    append(format, head_dim, {x, x}, 0, 32, 0, pool);
    const dequantized_tokens decoded = dequantize_tokens(format, head_dim, 32, pool.readable());
    for (std::size_t i = 0; i < 2 * tile; ++i) {
      BOOST_REQUIRE(decoded.k[i] == (i < tile ? 1 : 100));
      BOOST_REQUIRE(decoded.v[i] == (i < tile ? 1 : 100));
    }
  });
}

// Key 3 everywhere and value = channel: nothing of K may appear in V and the reverse.
BOOST_AUTO_TEST_CASE(keys_and_values_are_kept_apart) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    rows x = {std::vector<half_bits>(static_cast<std::size_t>(16 * head_dim), 0x4200), {}};
    for (int i = 0; i < 16 * head_dim; ++i) {
      x.v.push_back(float_to_half(static_cast<float>(i % head_dim)));
    }
    page_pool pool(format, head_dim, 1);
    append(format, head_dim, x, 0, 16, 0, pool);
    const dequantized_tokens decoded = dequantize_tokens(format, head_dim, 16, pool.readable());
    const double step = format.scales == spec::scale_layout::group16
                            ? 5.0
                            : static_cast<double>(head_dim - 1) / ((1 << format.value_bits) - 1);
    for (int i = 0; i < 16 * head_dim; ++i) {
      BOOST_REQUIRE(decoded.k[static_cast<std::size_t>(i)] == 3);
      BOOST_REQUIRE(std::fabs(decoded.v[static_cast<std::size_t>(i)] - i % head_dim) <=
                    step / 2 * (1 + 0x1p-8));
    }
  });
}

BOOST_AUTO_TEST_CASE(decoded_values_are_code_times_scale_plus_zero) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    const std::int64_t tokens = 96;
    rows x = random_rows(23, tokens, head_dim);
    x.k[5] = 0x7c00;  // infinity: its group decodes to NaN
    page_pool pool(format, head_dim, spec::pages_for_tokens(format, tokens));
    append(format, head_dim, x, 0, tokens, 0, pool);
    const unpacked_tokens read = unpack_tokens(format, head_dim, tokens, pool.readable());
    const dequantized_tokens decoded = dequantize_tokens(format, head_dim, tokens, pool.readable());
    const bool by_group = format.scales == spec::scale_layout::group16;
    std::size_t mismatches = 0;
    std::size_t nans = 0;
    for (std::size_t i = 0; i < decoded.k.size(); ++i) {
      const std::size_t width = static_cast<std::size_t>(head_dim);
      const std::size_t key_group = by_group ? i / (16 * width) * width + i % width : i / width;
      const std::size_t value_group = by_group ? i / 16 : i / width;
      const auto expected = [](std::uint8_t code, half_bits scale, half_bits zero) {
        return static_cast<double>(code) * half_to_float(scale) + half_to_float(zero);
      };
      const double k =
          expected(read.key_codes[i], read.key_scales[key_group], read.key_zeros[key_group]);
      const double v = expected(read.value_codes[i], read.value_scales[value_group],
                                read.value_zeros[value_group]);
      nans += std::isnan(decoded.k[i]);
      mismatches += !std::isnan(k) && decoded.k[i] != k;
      mismatches += decoded.v[i] != v;
    }
    BOOST_TEST(mismatches == 0);
    BOOST_TEST(nans == (by_group ? 16 : static_cast<std::size_t>(head_dim)));
  });
}

BOOST_AUTO_TEST_CASE(calls_outside_the_contract_are_refused) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    page_pool pool(format, head_dim, 1);
    const page_pool before = pool;
    const rows x = random_rows(29, 96, head_dim);
    if (format.token_granularity == 16) {
      BOOST_CHECK_THROW(append(format, head_dim, x, 0, 16, 8, pool), spec::contract_error);
      BOOST_CHECK_THROW(append(format, head_dim, x, 0, 15, 0, pool), spec::contract_error);
      BOOST_CHECK_THROW(unpack_tokens(format, head_dim, 17, pool.readable()), spec::contract_error);
    }
    BOOST_CHECK_THROW(append(format, head_dim, x, 0, 80, 0, pool), spec::contract_error);
    BOOST_CHECK_THROW(append(format, head_dim, x, 0, 16, format.tokens_per_page, pool),
                      spec::contract_error);
    BOOST_CHECK_THROW(append(format, head_dim, x, 0, 16, -16, pool), spec::contract_error);
    BOOST_CHECK_THROW(unpack_tokens(format, head_dim, format.tokens_per_page + 16, pool.readable()),
                      spec::contract_error);
    BOOST_CHECK_THROW(dequantize_tokens(format, head_dim, -16, pool.readable()),
                      spec::contract_error);
    const std::span<const half_bits> k = x.k;
    const auto size = static_cast<std::size_t>(16 * head_dim);
    BOOST_CHECK_THROW(
        append_tokens(format, head_dim, k.first(size), k.first(size - 1), 0, pool.writable()),
        spec::contract_error);
    BOOST_CHECK_THROW(
        append_tokens(format, head_dim, k.first(size - 1), k.first(size - 1), 0, pool.writable()),
        spec::contract_error);
    BOOST_CHECK_THROW(
        append_tokens(format, 96, k.first(16 * 96), k.first(16 * 96), 0, pool.writable()),
        spec::contract_error);
    BOOST_TEST((pool.bytes == before.bytes));

    page_pool short_page(format, head_dim, 1);
    short_page.bytes[0].pop_back();
    BOOST_CHECK_THROW(append(format, head_dim, x, 0, 16, 0, short_page), spec::contract_error);
  });
}

// kv_formats.md section 5: e depends on the channel group only, and code * 2^-e is the fp16 number
// code << (24 - e).
BOOST_AUTO_TEST_CASE(operand_patterns_are_codes_times_a_power_of_two) {
  for_each_format([](const spec::kv_format& format, int head_dim) {
    for (const kv_side side : {kv_side::key, kv_side::value}) {
      if (side == kv_side::key && format.key_bits != 2) continue;
      const int bits = side == kv_side::key ? format.key_bits : format.value_bits;
      for (int group = 0; group < head_dim / 16; ++group) {
        const int shift = operand_shift(format, head_dim, side, group);
        const int exponent = operand_exponent(format, head_dim, side, group);
        for (int code = 0; code < 1 << bits; ++code) {
          BOOST_REQUIRE(half_to_float(static_cast<half_bits>(code << shift)) ==
                        std::ldexp(static_cast<float>(code), -exponent));
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(operand_exponents_are_those_of_the_table) {
  const auto exponents = [](spec::format_id id, int head_dim, kv_side side) {
    std::vector<int> result;
    for (int group = 0; group < head_dim / 16; ++group) {
      result.push_back(operand_exponent(spec::format_of(id), head_dim, side, group));
    }
    return result;
  };
  using spec::format_id;
  const std::vector<int> four_bit_values = {22, 18, 22, 18, 22, 18, 22, 18};
  const std::vector<int> two_bits_128 = {20, 18, 20, 18, 16, 20, 18, 16};
  const std::vector<int> two_bits_64 = {20, 18, 20, 18};
  BOOST_TEST((exponents(format_id::k8v4, 128, kv_side::value) == four_bit_values));
  BOOST_TEST((exponents(format_id::k4v2, 128, kv_side::value) == two_bits_128));
  BOOST_TEST((exponents(format_id::k4v2, 64, kv_side::value) == two_bits_64));
  BOOST_TEST((exponents(format_id::int2_g16, 128, kv_side::key) == two_bits_128));
  BOOST_TEST((exponents(format_id::int2_g16, 64, kv_side::key) == two_bits_64));
  BOOST_TEST((exponents(format_id::int2_g16, 64, kv_side::value) == two_bits_64));
  // Integer operands.
  BOOST_CHECK_THROW(exponents(format_id::k8v4, 128, kv_side::key), spec::contract_error);
  BOOST_CHECK_THROW(exponents(format_id::k4v2, 64, kv_side::key), spec::contract_error);
}

BOOST_AUTO_TEST_SUITE_END()
