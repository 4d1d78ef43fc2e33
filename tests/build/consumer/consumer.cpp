// consumer TRACE.h5: quantizes one head of a recorded trace, decodes it with the reference, and
// measures the result against the fp64 oracle. Exits 1 when a library of the package does not do
// what it should.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/device/emulator/emulator.hpp"
#include "gpu/kernels/kernel_table.hpp"
#include "gpu/launch/launch.hpp"
#include "reference/attention/decode_attention.hpp"
#include "reference/formats/page_codec.hpp"
#include "reference/oracle/attention_oracle.hpp"
#include "traces/attention_trace.hpp"

namespace {

using namespace kvproof;

// Rows of one head out of [tokens][heads][head_dim].
std::vector<reference::half_bits> rows_of_head(const std::vector<reference::half_bits>& x,
                                               std::int64_t tokens, int heads, int head_dim) {
  std::vector<reference::half_bits> rows;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto row = x.begin() + t * heads * head_dim;
    rows.insert(rows.end(), row, row + head_dim);
  }
  return rows;
}

double error_of_reference(const traces::attention_trace& trace) {
  const int head_dim = trace.model.head_dim;
  const int gqa_ratio = trace.model.query_heads / trace.model.kv_heads;
  const std::int64_t tokens = trace.prompt_length;
  const auto k = rows_of_head(trace.layers[0].k, tokens, trace.model.kv_heads, head_dim);
  const auto v = rows_of_head(trace.layers[0].v, tokens, trace.model.kv_heads, head_dim);

  const spec::kv_format& format = spec::format_of(spec::format_id::k8v4);
  const auto page_bytes = static_cast<std::size_t>(spec::page_size_bytes(format, head_dim));
  std::vector<std::vector<std::byte>> pool(
      static_cast<std::size_t>(spec::pages_for_tokens(format, tokens)),
      std::vector<std::byte>(page_bytes));
  const std::vector<std::span<std::byte>> writable(pool.begin(), pool.end());
  const std::vector<std::span<const std::byte>> pages(pool.begin(), pool.end());
  reference::append_tokens(format, head_dim, k, v, 0, writable);

  const std::span q =
      std::span(trace.layers[0].q).first(static_cast<std::size_t>(gqa_ratio * head_dim));
  const reference::decode_input input{
      format.id, head_dim, gqa_ratio, static_cast<float>(trace.model.softmax_scale),
      q,         tokens,   pages,     0,
      {},        {}};
  return reference::worst_head_error(reference::decode_attention(input).out,
                                     reference::attend_stored(input).out, head_dim);
}

// Launches a decode that its checks must refuse: launchers, kernels and emulator are linked.
bool refuses_gqa_ratio_9() {
  const auto device = gpu::emulator::open({});
  gpu::decode_args args{};
  args.head_dim = 64;
  args.batch = args.kv_heads = 1;
  args.gqa_ratio = 9;
  try {
    gpu::decode(*device, args);
  } catch (const spec::contract_error&) {
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const traces::attention_trace trace = traces::read_attention_trace(argc > 1 ? argv[1] : "");
    const double error = error_of_reference(trace);
    std::string why_not;
    const int gpus = gpu::count_cuda_devices(&why_not);
    std::printf("%s: %lld tokens, relative error of the reference %.2e, %zu kernels, %d GPUs\n",
                trace.model.name.c_str(), static_cast<long long>(trace.num_tokens), error,
                gpu::kernel_entries().size(), gpus);
    // fp16 probabilities: 2^-11 each; zero would mean that nothing was computed.
    return error > 0 && error < 0x1p-9 && refuses_gqa_ratio_9() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "consumer: %s\n", e.what());
    return 1;
  }
}
