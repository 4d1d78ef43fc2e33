// See memory_kernels.hpp.
#include "bench/memory_kernels.hpp"

#include <span>

extern "C" {
extern const char kvproof_bench_memory_kernels_ptx[], kvproof_bench_memory_kernels_ptx_end[];
extern const char kvproof_bench_memory_kernels_cubin[], kvproof_bench_memory_kernels_cubin_end[];
}

namespace kvproof::bench {
namespace {

template <typename Params>
void launch(gpu::device& dev, std::string_view entry, const Params& params) {
  constexpr std::uint32_t threads = 512, ctas_per_multiprocessor = 4;
  const gpu::launch_shape shape{
      {ctas_per_multiprocessor * static_cast<std::uint32_t>(dev.info().num_multiprocessors), 1, 1},
      {threads, 1, 1},
      {1, 1, 1}};
  dev.launch(*dev.load(memory_kernels(), entry), shape, std::as_bytes(std::span(&params, 1)));
}

}  // namespace

const gpu::kernel_module& memory_kernels() {
  static const gpu::kernel_module module{
      "memory_kernels",
      {kvproof_bench_memory_kernels_ptx,
       static_cast<std::size_t>(kvproof_bench_memory_kernels_ptx_end -
                                kvproof_bench_memory_kernels_ptx)},
      std::as_bytes(
          std::span(kvproof_bench_memory_kernels_cubin, kvproof_bench_memory_kernels_cubin_end)),
      true};
  return module;
}

void launch_read(gpu::device& dev, const read_params& params) {
  launch(dev, "read_kernel", params);
}
void launch_repeat(gpu::device& dev, const repeat_params& params) {
  launch(dev, "repeat_kernel", params);
}

}  // namespace kvproof::bench
