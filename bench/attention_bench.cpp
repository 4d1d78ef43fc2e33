// Speed of the reference's decode attention and of its quantizer: one KV head, one core. items/s
// counts tokens of the cache.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/attention/decode_attention.hpp"
#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"

namespace {

using namespace kvproof;
using reference::half_bits;

constexpr std::int64_t num_quantized = 1024, num_recent = 40;
constexpr int gqa_ratio = 4;

std::vector<half_bits> halves(std::int64_t count, std::uint32_t seed) {  // bell-shaped, in (-4, 4)
  std::vector<half_bits> values(static_cast<std::size_t>(count));
  for (half_bits& x : values) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      seed = seed * 1664525u + 1013904223u;
      sum += static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
    }
    x = reference::float_to_half(sum);
  }
  return values;
}

struct cache {
  cache(const spec::kv_format& format, int head_dim)
      : k(halves(num_quantized * head_dim, 1)), v(halves(num_quantized * head_dim, 2)) {
    const auto page_bytes = static_cast<std::size_t>(spec::page_size_bytes(format, head_dim));
    const auto num_pages = static_cast<std::size_t>(spec::pages_for_tokens(format, num_quantized));
    bytes.resize(page_bytes * num_pages);
    for (std::size_t page = 0; page < num_pages; ++page) {
      writable.push_back(std::span(bytes).subspan(page * page_bytes, page_bytes));
      readable.emplace_back(writable.back());
    }
    reference::append_tokens(format, head_dim, k, v, 0, writable);
  }

  std::vector<half_bits> k, v;
  std::vector<std::byte> bytes;
  std::vector<std::span<std::byte>> writable;
  std::vector<std::span<const std::byte>> readable;
};

void decode_speed(benchmark::State& state, spec::format_id id) {
  const auto head_dim = static_cast<int>(state.range(0));
  const cache filled(spec::format_of(id), head_dim);
  const std::vector<half_bits> q = halves(std::int64_t{gqa_ratio} * head_dim, 3);
  const std::vector<half_bits> recent_k = halves(num_recent * head_dim, 4);
  const std::vector<half_bits> recent_v = halves(num_recent * head_dim, 5);
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const reference::decode_input input = {id,       head_dim,      gqa_ratio,       scale,
                                         q,        num_quantized, filled.readable, num_recent,
                                         recent_k, recent_v};
  for (auto _ : state) benchmark::DoNotOptimize(reference::decode_attention(input));
  state.SetItemsProcessed(state.iterations() * (num_quantized + num_recent));
}

void append_speed(benchmark::State& state, spec::format_id id) {
  const auto head_dim = static_cast<int>(state.range(0));
  cache filled(spec::format_of(id), head_dim);
  for (auto _ : state) {
    reference::append_tokens(spec::format_of(id), head_dim, filled.k, filled.v, 0, filled.writable);
    benchmark::DoNotOptimize(filled.bytes.data());
  }
  state.SetItemsProcessed(state.iterations() * num_quantized);
}

}  // namespace

BENCHMARK_CAPTURE(decode_speed, int2_g16, spec::format_id::int2_g16)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(decode_speed, k8v4, spec::format_id::k8v4)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(decode_speed, k4v2, spec::format_id::k4v2)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(append_speed, int2_g16, spec::format_id::int2_g16)->Arg(128);
BENCHMARK_CAPTURE(append_speed, k8v4, spec::format_id::k8v4)->Arg(128);
BENCHMARK_CAPTURE(append_speed, k4v2, spec::format_id::k4v2)->Arg(128);
