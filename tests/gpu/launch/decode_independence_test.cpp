// Decode attention of one (sequence, KV head) does not depend on what else is launched with it: the
// same bits of out, state and scores alone and among other heads of any length, with neighbours of
// other values, pages anywhere in a pool, either way to share work, and any grid. The emulator, or
// a GPU (test_device.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/gpu/launch/decode_launch.hpp"
#include "tests/gpu/launch/test_device.hpp"
#include "tests/reference/attention/head_fixture.hpp"

namespace kvproof::tests {
namespace {

constexpr std::array<int, 3> ratios = {1, 4, 7};
constexpr int largest_ratio = 7;

struct head_length {
  std::int64_t quantized, recent;
  std::int64_t low = 0;
};

// The heads whose results are compared: three splits and a recent part; less than one split. And
// the same with two tiers, each in three splits or less than one.
constexpr std::array<head_length, 2> subject_lengths = {{{2080, 37}, {80, 5}}};
constexpr std::array<head_length, 2> subject_tiers = {{{2080, 37, 2070}, {40, 5, 70}}};

// What the subjects are launched with.
struct neighbourhood {
  int batch, kv_heads;
  std::vector<head_length> others;
  std::array<std::size_t, 2> places;  // heads that are the subjects
  std::uint64_t seed;                 // of the others' values
  bool spoilt;                        // NaN and infinities among them
  int recent_capacity;                // tokens

  // The same with another tier: a head's low part is as long as the next head's first one.
  [[nodiscard]] neighbourhood with_tiers() const {
    neighbourhood n = *this;
    for (std::size_t i = 0; i < others.size(); ++i)
      n.others[i].low = others[(i + 1) % others.size()].quantized;
    return n;
  }
};

// Between heads that are longer and shorter, or have nothing.
const neighbourhood first_neighbours{
    .batch = 3,
    .kv_heads = 3,
    .others = {{0, 0}, {3104, 3}, {16, 0}, {0, 127}, {1040, 0}, {1200, 33}, {64, 1}},
    .places = {4, 7},
    .seed = 20,
    .spoilt = false,
    .recent_capacity = 128};
// Last and first of all; one neighbour is so long that its splits are of another length.
const neighbourhood other_neighbours{
    .batch = 2,
    .kv_heads = 4,
    .others = {{8208, 0}, {0, 9}, {1008, 0}, {0, 0}, {48, 63}, {2064, 64}},
    .places = {7, 0},
    .seed = 40,
    .spoilt = true,
    .recent_capacity = 64};

head_fixture drawn_head(spec::format_id format, int head_dim, head_length n, std::uint64_t seed,
                        bool spoilt) {
  seeded_values random(seed);
  const std::int64_t size = (n.quantized + n.low + n.recent) * head_dim;
  std::vector<half_bits> q = random.normal_halves(std::int64_t{largest_ratio} * head_dim);
  std::vector<half_bits> k = random.normal_halves(size), v = random.normal_halves(size);
  if (spoilt) {
    for (std::size_t i = 5; i < k.size(); i += 331) k[i] = i % 2 == 0 ? half_nan : 0x7c00;
    for (std::size_t i = 9; i < v.size(); i += 173) v[i] = 0xfc00;
  }
  return {{format, head_dim, largest_ratio, n.quantized, n.recent, n.low},
          std::move(q),
          std::move(k),
          std::move(v)};
}

// Heads in the order of a launch, as one (sequence, KV head) each.
struct arrangement {
  std::string name;
  int batch, kv_heads, recent_capacity;
  std::vector<const head_fixture*> heads;
  std::uint64_t page_seed;  // 0: pages in order; else scattered over a pool three times as large
  bool tiers;
};

decode_heads arrange(const arrangement& a, int ratio) {
  const head_fixture& first = *a.heads.front();
  decode_heads h{};
  h.format = first.shape.format;
  h.head_dim = first.shape.head_dim;
  h.ratio = ratio;
  h.batch = a.batch;
  h.kv_heads = a.kv_heads;
  h.scale = first.softmax_scale;
  h.recent_capacity = a.recent_capacity;
  std::size_t pages = 0;
  h.max_pages = 1;
  for (const head_fixture* f : a.heads) {
    const std::size_t of_head = f->pool.bytes.size() + f->low_pool.bytes.size();
    pages += of_head;
    h.max_pages = std::max(h.max_pages, static_cast<std::int64_t>(of_head));
    h.max_quantized = std::max(h.max_quantized, f->shape.num_quantized);
    h.max_low = std::max(h.max_low, f->shape.num_low);
  }
  h.score_capacity = h.max_quantized + h.max_low + a.recent_capacity;

  std::vector<std::int32_t> ids(a.page_seed == 0 ? pages : 3 * pages);
  std::iota(ids.begin(), ids.end(), 0);
  if (a.page_seed != 0) {
    seeded_values random(a.page_seed);
    for (std::size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[static_cast<std::size_t>(random.below(std::int64_t(i)))]);
  }
  const auto page_bytes =
      static_cast<std::size_t>(spec::page_size_bytes(spec::format_of(h.format), h.head_dim));
  h.pages.assign(std::max<std::size_t>(ids.size(), 1) * page_bytes, std::byte{0xff});
  h.table.assign(a.heads.size() * static_cast<std::size_t>(h.max_pages), -1);

  const auto dim = static_cast<std::size_t>(h.head_dim);
  const std::size_t recent_row = static_cast<std::size_t>(a.recent_capacity) * dim;
  h.recent_k.assign(a.heads.size() * recent_row, half_nan);
  h.recent_v = h.recent_k;
  std::size_t next_page = 0;
  for (std::size_t i = 0; i < a.heads.size(); ++i) {
    const head_fixture& f = *a.heads[i];
    h.q.insert(h.q.end(), f.q.begin(), f.q.begin() + std::ptrdiff_t{ratio} * h.head_dim);
    h.num_quantized.push_back(static_cast<std::int32_t>(f.shape.num_quantized));
    h.num_recent.push_back(static_cast<std::int32_t>(f.shape.num_recent));
    if (a.tiers) h.num_low.push_back(static_cast<std::int32_t>(f.shape.num_low));
    const reference::decode_input input = f.input();
    std::ranges::copy(input.recent_k, h.recent_k.begin() + std::ptrdiff_t(i * recent_row));
    std::ranges::copy(input.recent_v, h.recent_v.begin() + std::ptrdiff_t(i * recent_row));
    const auto place = [&](std::size_t entry, const std::vector<std::byte>& page) {
      const std::int32_t id = ids[next_page++];
      h.table[entry] = id;
      std::ranges::copy(
          page, h.pages.begin() + std::ptrdiff_t(static_cast<std::size_t>(id) * page_bytes));
    };
    const auto row_pages = static_cast<std::size_t>(h.max_pages);
    std::size_t front = i * row_pages, back = front + row_pages;
    for (const std::vector<std::byte>& page : f.pool.bytes) place(front++, page);
    for (const std::vector<std::byte>& page : f.low_pool.bytes) place(--back, page);
  }
  return h;
}

// One head's share of the results: out, state, and scores of its tokens.
decode_results results_of_head(const decode_results& all, const decode_heads& h, std::size_t head) {
  const auto row = [&](const std::vector<std::uint32_t>& x, std::size_t count) {
    const auto from = x.begin() + std::ptrdiff_t(head * (x.size() / h.heads()));
    return std::vector<std::uint32_t>(from, from + std::ptrdiff_t(count));
  };
  const auto ratio = static_cast<std::size_t>(h.ratio);
  const auto tokens = static_cast<std::size_t>(h.num_quantized[head] + h.num_recent[head] +
                                               (h.num_low.empty() ? 0 : h.num_low[head]));
  return {row(all.out, ratio * static_cast<std::size_t>(h.head_dim)), row(all.state, ratio * 2),
          row(all.scores, ratio * tokens)};
}

std::size_t differing(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

bool is_written_number(std::uint32_t x) {
  return x != decode_poison && (x & 0x7f800000U) != 0x7f800000U;
}

class independence {
 public:
  independence(spec::format_id format, int head_dim, bool tiers = false)
      : dev_(open_test_device()), tiers_(tiers) {
    const auto& lengths = tiers ? subject_tiers : subject_lengths;
    for (std::size_t s = 0; s < lengths.size(); ++s)
      subjects_.push_back(drawn_head(format, head_dim, lengths[s], 1 + s, false));
    for (const neighbourhood* one : {&first_neighbours, &other_neighbours}) {
      const neighbourhood n = tiers ? one->with_tiers() : *one;
      std::vector<head_fixture> drawn;
      for (std::size_t i = 0; i < n.others.size(); ++i)
        drawn.push_back(drawn_head(format, head_dim, n.others[i], n.seed + i, n.spoilt));
      neighbours_.push_back(std::move(drawn));
    }
  }

  void check(int ratio) {
    std::vector<decode_results> alone;
    for (const head_fixture& s : subjects_) {
      const auto alone_in = [&](std::uint64_t page_seed) {
        return arrangement{"alone", 1, 1, 40, {&s}, page_seed, tiers_};
      };
      alone.push_back(launch(alone_in(0), ratio, true, 0)[0]);
      for (const std::vector<std::uint32_t>* x :
           {&alone.back().out, &alone.back().state, &alone.back().scores})
        BOOST_TEST(std::ranges::all_of(*x, is_written_number));
      compare(alone.back(), launch(alone_in(3), ratio, false, 0)[0], "alone, pages scattered");
      compare(alone.back(), launch(alone_in(0), ratio, true, 1)[0], "alone, one CTA");
    }
    for (const bool equal_lengths : {true, false}) {
      // On a grid of 5 the ranges of CTAs cross heads and end inside the long ones.
      check_among(first_neighbours, 0, alone, ratio, equal_lengths, equal_lengths ? 5 : 0);
      check_among(other_neighbours, 1, alone, ratio, equal_lengths, equal_lengths ? 0 : 5);
    }
  }

 private:
  void check_among(const neighbourhood& n, std::size_t index,
                   const std::vector<decode_results>& alone, int ratio, bool equal_lengths,
                   std::uint32_t grid) {
    arrangement a{fmt::format("neighbours {}", index),
                  n.batch,
                  n.kv_heads,
                  n.recent_capacity,
                  {},
                  7 + index,
                  tiers_};
    auto other = neighbours_[index].begin();
    for (std::size_t head = 0; head < n.others.size() + subjects_.size(); ++head) {
      const auto place = std::ranges::find(n.places, head);
      a.heads.push_back(place == n.places.end()
                            ? &*other++
                            : &subjects_[static_cast<std::size_t>(place - n.places.begin())]);
    }
    const std::vector<decode_results> all = launch(a, ratio, equal_lengths, grid);
    for (std::size_t s = 0; s < subjects_.size(); ++s) {
      compare(alone[s], all[n.places[s]],
              fmt::format("{}, subject {}, equal {}, grid {}", a.name, s, equal_lengths, grid));
    }
  }

  // Results of every head.
  std::vector<decode_results> launch(const arrangement& a, int ratio, bool equal_lengths,
                                     std::uint32_t grid) {
    const decode_heads h = arrange(a, ratio);
    regridding_device dev(*dev_);
    dev.grid = grid;
    const decode_results all = launch_decode(dev, h, true, equal_lengths, a.name);
    std::vector<decode_results> heads;
    for (std::size_t i = 0; i < h.heads(); ++i) heads.push_back(results_of_head(all, h, i));
    return heads;
  }

  void compare(const decode_results& alone, const decode_results& other, const std::string& how) {
    const std::string name = fmt::format(
        "{} d{} g{}: {}", tiers_ ? "tiers" : spec::format_of(subjects_[0].shape.format).name,
        subjects_[0].shape.head_dim, alone.state.size() / 2, how);
    for (const auto& [tensor, expected, actual] : {std::tuple{"out", &alone.out, &other.out},
                                                   {"state", &alone.state, &other.state},
                                                   {"scores", &alone.scores, &other.scores}}) {
      const std::size_t count = differing(*expected, *actual);
      BOOST_TEST(count == 0u, name << ", " << tensor << ": " << count << " of " << expected->size()
                                   << " differ");
    }
  }

  std::unique_ptr<gpu::device> dev_;
  bool tiers_;
  std::vector<head_fixture> subjects_;
  std::vector<std::vector<head_fixture>> neighbours_;
};

void sweep(spec::format_id format, int head_dim, bool tiers = false) {
  independence heads(format, head_dim, tiers);
  for (const int ratio : ratios) heads.check(ratio);
}

BOOST_AUTO_TEST_CASE(int2_g16_d64) { sweep(spec::format_id::int2_g16, 64); }
BOOST_AUTO_TEST_CASE(int2_g16_d128) { sweep(spec::format_id::int2_g16, 128); }
BOOST_AUTO_TEST_CASE(k8v4_d64) { sweep(spec::format_id::k8v4, 64); }
BOOST_AUTO_TEST_CASE(k8v4_d128) { sweep(spec::format_id::k8v4, 128); }
BOOST_AUTO_TEST_CASE(k4v2_d64) { sweep(spec::format_id::k4v2, 64); }
BOOST_AUTO_TEST_CASE(k4v2_d128) { sweep(spec::format_id::k4v2, 128); }
BOOST_AUTO_TEST_CASE(tiers_d64) { sweep(spec::format_id::k8v4, 64, true); }
BOOST_AUTO_TEST_CASE(tiers_d128) { sweep(spec::format_id::k8v4, 128, true); }

}  // namespace
}  // namespace kvproof::tests
