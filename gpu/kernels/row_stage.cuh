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

  // Bits 4 to 6 of a chunk's place, from its row.
  static __device__ __forceinline__ constexpr std::uint32_t swizzle_of_row(int row) {
    return static_cast<std::uint32_t>((row & 4) | (row & 1) << 1 | (row & 2) >> 1) << 4;
  }
  // The base is aligned to 256 bytes: the swizzle changes bits 4 to 7 of an address.
  static __device__ __forceinline__ std::uint32_t place(std::uint32_t base, int row, int chunk) {
    const std::uint32_t by_half =
        static_cast<std::uint32_t>(HeadDim == 128 ? chunk >> 3 : row >> 4 & 1) << 4;
    return base + (static_cast<std::uint32_t>(row * HeadDim * 2 + chunk * chunk_bytes) ^
                   swizzle_of_row(row) ^ by_half);
  }
  // The place of (row + rows_on, chunk + chunks_on) from that of (row, chunk), where the sums carry
  // no bit. Both steps are constants: an exclusive or and an offset.
  static __device__ __forceinline__ std::uint32_t step(std::uint32_t place, int rows_on,
                                                       int chunks_on) {
    const bool by_half = HeadDim == 128 ? (chunks_on & 8) != 0 : (rows_on & 16) != 0;
    return (place ^ swizzle_of_row(rows_on) ^ static_cast<std::uint32_t>(chunks_on * chunk_bytes) ^
            (by_half ? 16u : 0u)) +
           static_cast<std::uint32_t>(rows_on * HeadDim * 2);
  }
};

// 16 bytes from global to shared memory without registers.
__device__ __forceinline__ void copy_chunk(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros, and nothing read, if not `wanted`.
__device__ __forceinline__ void copy_chunk_if(bool wanted, std::uint32_t to, const void* from) {
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
