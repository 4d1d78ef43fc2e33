// fp16 rows of a warp in shared memory: copied in 16-byte chunks, read as 8x8 matrices or as
// vectors. A warp's share (a unit) is 4 KB: 16 rows of 128 channels or 32 of 64.
// Chunks are swizzled inside their row, so that copies and all reads are free of bank conflicts:
// 8 rows of one chunk; the even or the odd chunks of a row (64 channels: of rows r and r + 16);
// chunks c and c + 2 of rows r, r + 2, r + 4, r + 6.
#pragma once

#include <cstdint>

#include "gpu/kernels/ptx.cuh"

namespace kvproof::gpu {

constexpr int chunk_bytes = 16;  // 8 channels

template <int HeadDim>
struct row_stage {
  static constexpr int rows = 2048 / HeadDim;
  static constexpr int row_chunks = HeadDim / 8;
  static constexpr int bytes = 4096;

  static __device__ __forceinline__ std::uint32_t place(std::uint32_t base, int row, int chunk) {
    const int by_row = (row & 4) | (row & 1) << 1 | (row & 2) >> 1;
    const int by_half = HeadDim == 128 ? chunk >> 3 : row >> 4 & 1;
    return base +
           static_cast<std::uint32_t>(row * HeadDim * 2 + (chunk ^ by_row ^ by_half) * chunk_bytes);
  }
};

// 16 bytes from global to shared memory without registers; zeros if not `wanted`.
__device__ __forceinline__ void copy_chunk(std::uint32_t to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(wanted ? chunk_bytes : 0)
               : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
}

// Four 8x8 matrices of halves; lane 8 m + i names row i of matrix m. Lane 4 g + t receives columns
// 2t, 2t + 1 of row g of each; transposed: rows 2t, 2t + 1 of column g.
template <bool Transposed>
__device__ __forceinline__ uint4 load_matrices(std::uint32_t row_address) {
  uint4 v;
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row_address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row_address)
                 : "memory");
  }
  return v;
}

}  // namespace kvproof::gpu
