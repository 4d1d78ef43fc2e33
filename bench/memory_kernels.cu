// The benchmarks' own kernels: the plainest read of memory there is, whose rate is the peak that
// other kernels are measured against, and one that fills a buffer with repetitions of a short one.
#include <cstdint>

struct read_params {
  const uint4* data;
  std::uint32_t* sink;   // one word, written only if the impossible happens
  std::int64_t vectors;  // 16 bytes each
};

extern "C" __global__ void __launch_bounds__(512)
    read_kernel(const __grid_constant__ read_params p) {
  std::uint32_t x = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < p.vectors; i += 4 * stride) {
    const uint4 a = __ldcs(p.data + i), b = __ldcs(p.data + i + stride),
                c = __ldcs(p.data + i + 2 * stride), d = __ldcs(p.data + i + 3 * stride);
    x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^
         d.w;
  }
  for (; i < p.vectors; i += stride) x ^= p.data[i].x;
  if (x == 0x9e3779b9u && threadIdx.x == 77) *p.sink = x;
}

struct repeat_params {
  const uint4* pattern;
  uint4* to;
  std::int64_t pattern_vectors, vectors;
};

// to[i] = pattern[i mod pattern_vectors]
extern "C" __global__ void __launch_bounds__(512)
    repeat_kernel(const __grid_constant__ repeat_params p) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < p.vectors; i += stride) p.to[i] = p.pattern[i % p.pattern_vectors];
}
