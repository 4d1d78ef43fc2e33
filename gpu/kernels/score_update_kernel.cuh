// Adds the group maximum of probabilities to the running significance of every token
// (reference/spec/score_update.md).
//
// Grid: x = 512 tokens, y = KV head, z = sequence; a warp takes 128 tokens. A unit is the fewest
// tokens whose logits are whole 16-byte vectors; a lane has one of 32 neighbouring units at a time.
// The warp loads the vectors of 32 units in the order of memory and, where a unit is more than two,
// deals them out through shared memory; all loads of a warp are in flight at once. The 128 tokens
// in which a cache ends go by scalars, so that nothing behind the end is read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <numeric>

#include "gpu/kernels/kernel_params.hpp"
#include "gpu/kernels/ptx.cuh"
#include "gpu/kernels/score_update_shape.hpp"

namespace kvproof::gpu {

template <int Ratio>
struct score_update_policy {
  static constexpr int ratio = Ratio;
  static constexpr int unit_tokens = 4 / std::gcd(Ratio, 4);
  static constexpr int unit_vectors = unit_tokens * Ratio / 4;
  static constexpr int units = score_update_thread_tokens / unit_tokens;  // of a lane
  static constexpr int warp_tokens = 32 * score_update_thread_tokens;
  // Two vectors a lane fill whole sectors without help.
  static constexpr bool exchanges = unit_vectors > 2;
  static_assert(unit_tokens * units == score_update_thread_tokens);
};

// What a lane works on: logits [token][query head] and significance of its tokens.
template <int Ratio>
struct score_tile {
  float logits[score_update_thread_tokens][Ratio];
  float running[score_update_thread_tokens];
};

// The i-th token of a lane, counted from the warp's first.
template <class Policy>
__device__ __forceinline__ int tile_token(int lane, int i) {
  constexpr int n = Policy::unit_tokens;
  return i / n * 32 * n + lane * n + i % n;
}

// Vector 32 k + lane of the warp, for all k, becomes vector lane * N + k. N is odd: lanes that read
// at once stand in different banks.
template <int N>
__device__ __forceinline__ void deal_out(float4 (&v)[N], float4* stage, int lane) {
  static_assert(N % 2 == 1, "an even N would meet in the same banks");
#pragma unroll
  for (int k = 0; k < N; ++k) stage[32 * k + lane] = v[k];
  __syncwarp();
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] = stage[N * lane + k];
}

// N floats of neighbouring tokens, as one access.
template <int N>
__device__ __forceinline__ void load_running(float* to, const float* from) {
  if constexpr (N == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (N == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
    to[0] = *from;
  }
}
template <int N>
__device__ __forceinline__ void store_running(float* to, const float* from) {
  if constexpr (N == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else if constexpr (N == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  } else {
    *to = *from;
  }
}

// `scores` and `running` of the warp's first token; all warp_tokens are there.
template <class Policy>
__device__ __forceinline__ void load_whole(score_tile<Policy::ratio>& tile, const float* scores,
                                           const float* running, float4* stage, int lane) {
  constexpr int n = Policy::unit_vectors;
  float4 v[Policy::units][n];
#pragma unroll
  for (int u = 0; u < Policy::units; ++u) {
    const float4* const from = reinterpret_cast<const float4*>(scores) + u * 32 * n;
#pragma unroll
    for (int k = 0; k < n; ++k) v[u][k] = from[Policy::exchanges ? 32 * k + lane : n * lane + k];
  }
#pragma unroll
  for (int u = 0; u < Policy::units; ++u) {
    constexpr int tokens = Policy::unit_tokens;
    load_running<tokens>(tile.running + u * tokens, running + tile_token<Policy>(lane, u * tokens));
  }
#pragma unroll
  for (int u = 0; u < Policy::units; ++u) {
    if constexpr (Policy::exchanges) {
      if (u > 0) __syncwarp();  // the stage has been read
      deal_out(v[u], stage, lane);
    }
#pragma unroll
    for (int i = 0; i < 4 * n; ++i) {
      const float4 four = v[u][i / 4];
      const float x = i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
      tile.logits[u * Policy::unit_tokens + i / Policy::ratio][i % Policy::ratio] = x;
    }
  }
}

template <int Ratio>
__device__ __forceinline__ void score_update(const score_update_params& p) {
  using policy = score_update_policy<Ratio>;
  __shared__ float4 stages[policy::exchanges ? score_update_threads * policy::unit_vectors : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  wait_for_previous_grid();  // all of it reads what decode wrote
  allow_next_grid();
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * score_update_cta_tokens + warp * policy::warp_tokens;
  // Lane g has m and 1 / l of query head g. Asked for before the length has come.
  float2 state = make_float2(0.0f, 1.0f);
  if (lane < Ratio) state = reinterpret_cast<const float2*>(p.state)[head * Ratio + lane];
  const std::int64_t left = p.num_tokens[head] - first;
  if (left <= 0) return;
  const bool whole = left >= policy::warp_tokens;
  const float* const scores = p.scores + (head * p.score_capacity + first) * Ratio;
  float* const running = p.running + head * p.running_capacity + first;

  score_tile<Ratio> tile;
  if (whole) {
    float4* const stage = stages + (policy::exchanges ? warp * 32 * policy::unit_vectors : 0);
    load_whole<policy>(tile, scores, running, stage, lane);
  } else {
#pragma unroll
    for (int i = 0; i < score_update_thread_tokens; ++i) {
      const int token = tile_token<policy>(lane, i);
      const bool there = token < left;
#pragma unroll
      for (int g = 0; g < Ratio; ++g) tile.logits[i][g] = there ? scores[token * Ratio + g] : 0.0f;
      tile.running[i] = there ? running[token] : 0.0f;
    }
  }

  const float reciprocal = __fdiv_rn(1.0f, state.y);
#pragma unroll
  for (int g = 0; g < Ratio; ++g) {
    const float m = __shfl_sync(~0u, state.x, g), r = __shfl_sync(~0u, reciprocal, g);
#pragma unroll
    for (int i = 0; i < score_update_thread_tokens; ++i)
      tile.logits[i][g] = __fmul_rn(ex2(__fsub_rn(tile.logits[i][g], m)), r);
  }
#pragma unroll
  for (int i = 0; i < score_update_thread_tokens; ++i) {
    float largest = tile.logits[i][0];
#pragma unroll
    for (int g = 1; g < Ratio; ++g) largest = fmaxf(largest, tile.logits[i][g]);
    tile.running[i] = __fadd_rn(tile.running[i], largest);
  }

  if (whole) {
#pragma unroll
    for (int u = 0; u < policy::units; ++u) {
      constexpr int tokens = policy::unit_tokens;
      store_running<tokens>(running + tile_token<policy>(lane, u * tokens),
                            tile.running + u * tokens);
    }
  } else {
#pragma unroll
    for (int i = 0; i < score_update_thread_tokens; ++i) {
      const int token = tile_token<policy>(lane, i);
      if (token < left) running[token] = tile.running[i];
    }
  }
}

}  // namespace kvproof::gpu
