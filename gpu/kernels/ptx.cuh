// The instructions that CUDA C++ has no function for, one wrapper each. Float arithmetic in here is
// either exact or names its rounding.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace kvproof::gpu {

constexpr std::uint32_t half2_ones = 0x3c003c00u;

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// mbarrier: `arrivals`, and the bytes that they expect of bulk copies, complete a phase.
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// L2 policies: pages are read once, scores are read again soon.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ std::uint64_t evict_last_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies `bytes` (a multiple of 16) to shared memory and reports them to the mbarrier.
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, int bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// 16 bytes from global to shared memory without registers.
__device__ __forceinline__ void copy_chunk(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros, and nothing read, if not `wanted`.
__device__ __forceinline__ void copy_chunk_if(bool wanted, std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(wanted ? 16 : 0)
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

__device__ __forceinline__ void prefetch_to_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Programmatic dependent launch: the next kernel of the stream may be set up while this one runs,
// and waits here until the one before has finished and its results are visible. Without the launch
// attribute both do nothing.
__device__ __forceinline__ void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void allow_next_grid() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
__device__ __forceinline__ uint2 load_shared_8(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
__device__ __forceinline__ void store_shared_8(std::uint32_t address, std::uint32_t x,
                                               std::uint32_t y) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_kept(float* to, float v, std::uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(to), "f"(v), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_kept(float2* to, float2 v, std::uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1,%2}, %3;" ::"l"(to), "f"(v.x), "f"(v.y),
               "l"(policy)
               : "memory");
}

// An A operand of m16n8k16: rows g and g+8 (g = lane / 4), columns 2t, 2t+1 and 2t+8, 2t+9 (t =
// lane % 4).
struct a_fragment {
  std::uint32_t x, y, z, w;
};
// d += a * b; d holds rows g, g+8 and columns 2t, 2t+1.
__device__ __forceinline__ void mma(float (&d)[4], const a_fragment& a, std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// d += a * b, modulo 2^32: 8-bit operands, unsigned a, signed b. Rows g, g+8 (g = lane / 4) of a:
// columns 4t .. 4t+3 (x, y) and 16+4t .. 16+4t+3 (z, w), the rows of b in column g likewise.
__device__ __forceinline__ void mma_bytes(int (&d)[4], const a_fragment& a, std::uint32_t b0,
                                          std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// Transposes an 8x8 matrix of halves that is spread over the warp.
__device__ __forceinline__ std::uint32_t transpose_8x8(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ std::uint32_t pack_halves(float low,
                                                     float high) {  // rounds to nearest even
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ std::uint32_t mul_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ std::uint32_t sub_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
// Packed halves; one NaN makes the result NaN.
__device__ __forceinline__ std::uint32_t min_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
// Bits of a where the mask is set, else of b.
__device__ __forceinline__ std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a,
                                                     std::uint32_t b) {
  std::uint32_t r;  // one instruction, which the compiler does not find
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(r) : "r"(a), "r"(b), "r"(mask));
  return r;
}
__device__ __forceinline__ float low_half(std::uint32_t h) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(h & 0xffffu)));
}
__device__ __forceinline__ float high_half(std::uint32_t h) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(h >> 16)));
}

}  // namespace kvproof::gpu
