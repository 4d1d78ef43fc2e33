// Speed of the reference's numerics. items/s counts modelled multiply-adds (tensor core) or values
// (ex2), on one core. Each benchmark first checks its result against the scalar model.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "reference/numerics/ex2.hpp"
#include "reference/numerics/half.hpp"
#include "reference/numerics/tensor_core.hpp"

namespace {

using namespace kvproof::reference;

std::vector<std::uint16_t> halves(std::size_t count, std::uint32_t seed) {  // in (-2, 2)
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& x : values) {
    seed = seed * 1664525u + 1013904223u;
    x = float_to_half(static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-30f);
  }
  return values;
}

// c [rows][8] += a [rows][depth] * b [depth][8], operands as they come from a cache: keys of a page
// (64 tokens x head_dim) and values of a page (head_dim x 64 tokens) for one KV head.
void mma_matrix_speed(benchmark::State& state, architecture arch) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  const std::vector<std::uint16_t> a = halves(rows * depth, 1), b = halves(depth * 8, 2);
  std::vector<float> c(rows * 8, 0.0f);
  mma_matrix(c, a, b, arch);
  for (std::size_t i = 0; i < c.size(); ++i) {
    std::vector<std::uint16_t> column(depth);
    for (std::size_t k = 0; k < depth; ++k) column[k] = b[k * 8 + i % 8];
    const float expected = mma_dot(std::span(a).subspan(i / 8 * depth, depth), column, 0.0f, arch);
    if (std::bit_cast<std::uint32_t>(c[i]) != std::bit_cast<std::uint32_t>(expected)) {
      state.SkipWithError("mma_matrix differs from mma_dot");
      return;
    }
  }
  for (auto _ : state) {
    std::fill(c.begin(), c.end(), 0.0f);
    mma_matrix(c, a, b, arch);
    benchmark::DoNotOptimize(c.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(rows * depth * 8));
}

void mma_dot_speed(benchmark::State& state) {
  const std::vector<std::uint16_t> a = halves(128, 1), b = halves(128, 2);
  for (auto _ : state) benchmark::DoNotOptimize(mma_dot(a, b, 0.0f, architecture::sm_90));
  state.SetItemsProcessed(state.iterations() * 128);
}

void ex2_speed(benchmark::State& state) {
  std::vector<float> x(4096);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = -static_cast<float>(i) * 0x1.9p-9f;
  for (auto _ : state) {
    for (const float value : x) benchmark::DoNotOptimize(ex2_approx(value));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(x.size()));
}

}  // namespace

BENCHMARK_CAPTURE(mma_matrix_speed, sm_90, architecture::sm_90)
    ->ArgNames({"rows", "depth"})
    ->Args({64, 128})
    ->Args({128, 64})
    ->Args({64, 64});
BENCHMARK_CAPTURE(mma_matrix_speed, sm_80, architecture::sm_80)
    ->ArgNames({"rows", "depth"})
    ->Args({64, 128});
BENCHMARK(mma_dot_speed);
BENCHMARK(ex2_speed);

BENCHMARK_MAIN();
