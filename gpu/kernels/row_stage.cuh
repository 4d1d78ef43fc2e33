// fp16 rows of a warp in shared memory: copied in 16-byte chunks, read as 8x8 matrices or as
// vectors. A warp's share (a unit) is 4 KB: 16 rows of 128 channels or 32 of 64.
// Chunks are swizzled inside their row, so that copies and all reads are free of bank conflicts:
// 8 rows of one chunk; the even or the odd chunks of a row (64 channels: of rows r and r + 16);
// chunks c and c + 2 of rows r, r + 2, r + 4, r + 6.
#pragma once

#include <cstdint>

#include "gpu/kernels/page_units.hpp"
#include "gpu/kernels/ptx.cuh"

namespace kvproof::gpu {

constexpr int chunk_bytes = 16;  // 8 channels, what copy_chunk moves

template <int HeadDim>
struct row_stage {
  static constexpr int rows = unit_tokens(HeadDim);
  static constexpr int row_chunks = HeadDim / 8;
  static constexpr int bytes = unit_elements * 2;

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

}  // namespace kvproof::gpu
