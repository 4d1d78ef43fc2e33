// The score update kernels, run in the emulator (or on a GPU, test_device.hpp), equal the reference
// bit for bit for every GQA ratio and for lengths around every step of their grid; tokens behind
// the end are neither read nor written.
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <span>

#include "gpu/launch/score_update.hpp"
#include "reference/attention/score_update.hpp"
#include "tests/gpu/launch/device_arrays.hpp"
#include "tests/gpu/launch/test_device.hpp"
#include "tests/reference/formats/seeded_values.hpp"

namespace kvproof::tests {
namespace {

constexpr std::array lengths = {0,   1,   2,   3,   4,    5,    127,  128,
                                129, 511, 512, 513, 1023, 1024, 1025, 640};
constexpr int batch = 4, kv_heads = 4, heads = batch * kv_heads;
static_assert(lengths.size() == heads);
constexpr std::int64_t score_capacity = 1032, running_capacity = 1028;

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

void check(int ratio) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  seeded_values random(static_cast<std::uint64_t>(ratio) + 40);
  const auto dev = open_test_device();
  // Behind the end of a head: NaN, so that whoever reads it shows it.
  std::vector<float> scores(static_cast<std::size_t>(heads * score_capacity * ratio), NAN);
  std::vector<float> state, running(static_cast<std::size_t>(heads * running_capacity), NAN);
  std::vector<std::int32_t> num_tokens;
  for (int h = 0; h < heads; ++h) {
    const auto n = static_cast<std::size_t>(lengths[static_cast<std::size_t>(h)]);
    const auto of_head = std::span(scores).subspan(
        static_cast<std::size_t>(h * score_capacity * ratio), n * static_cast<std::size_t>(ratio));
    float largest = -infinity;
    for (float& x : of_head) {
      x = static_cast<float>(20 * random.normal());
      largest = std::max(largest, x);
    }
    for (std::size_t i = 0; i < of_head.size(); ++i) {  // some that a step may meet, a few NaN
      if (i % 97 == 13) of_head[i] = -infinity;
      if (i % 211 == 5) of_head[i] = NAN;
    }
    for (int g = 0; g < ratio; ++g) {
      const bool empty = n == 0, poisoned = h == 7 && g == 0;
      state.push_back(empty ? -infinity : largest - static_cast<float>(g));
      state.push_back(empty      ? 0.0f
                      : poisoned ? NAN
                                 : 1 + static_cast<float>(random.below(4096)) / 3);
    }
    for (std::size_t t = 0; t < n; ++t)
      running[static_cast<std::size_t>(h * running_capacity) + t] =
          static_cast<float>(random.below(1000)) / 7;
    num_tokens.push_back(static_cast<std::int32_t>(n));
  }

  const device_array<float> device_scores(*dev, scores), device_state(*dev, state),
      device_running(*dev, running);
  const device_array<std::int32_t> device_tokens(*dev, num_tokens);
  for (int h = 0; h < heads; ++h) {
    const auto n = static_cast<std::size_t>(num_tokens[static_cast<std::size_t>(h)]);
    reference::update_scores(
        {ratio,
         std::span(scores).subspan(static_cast<std::size_t>(h * score_capacity * ratio),
                                   n * static_cast<std::size_t>(ratio)),
         std::span(state).subspan(static_cast<std::size_t>(h * ratio * 2),
                                  static_cast<std::size_t>(ratio * 2))},
        std::span(running).subspan(static_cast<std::size_t>(h * running_capacity), n));
  }
  gpu::score_update_args a{};
  a.batch = batch;
  a.kv_heads = kv_heads;
  a.gqa_ratio = ratio;
  a.max_tokens = 1028;
  a.scores = device_scores.get();
  a.score_capacity = score_capacity;
  a.state = device_state.get();
  a.num_tokens = device_tokens.get();
  a.running = device_running.get();
  a.running_capacity = running_capacity;
  gpu::score_update(*dev, a);
  dev->synchronize();

  const std::vector<float> found = device_running.read();
  std::size_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (same(found[i], running[i])) continue;
    if (different++ == 0) {
      BOOST_TEST(found[i] == running[i], "G " << ratio << " head " << i / running_capacity
                                              << " token " << i % running_capacity << ": "
                                              << found[i] << ", not " << running[i]);
    }
  }
  BOOST_TEST(different == 0u, "G " << ratio << ": " << different << " tokens differ");
  BOOST_TEST((device_running.canaries_live() && device_scores.canaries_live()));
}

BOOST_AUTO_TEST_CASE(every_ratio) {
  for (int ratio = 1; ratio <= 8; ++ratio) check(ratio);
}

}  // namespace
}  // namespace kvproof::tests
