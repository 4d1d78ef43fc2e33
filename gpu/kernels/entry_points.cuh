// Entry points by name: extern "C" around the templates, so that a kernel can be found in a module
// by the name that kernel_table.cpp gives it.
#pragma once

#define KVPROOF_DECODE_ENTRY(name, cache, dim, ratio)                                            \
  extern "C" __global__ void __launch_bounds__(                                                  \
      kvproof::gpu::decode_threads,                                                              \
      (kvproof::gpu::decode_policy<kvproof::gpu::cache, dim, ratio>::shape.ctas_per_sm))         \
      name##_d##dim##_g##ratio##_kernel(const __grid_constant__ kvproof::gpu::decode_params p) { \
    kvproof::gpu::decode<kvproof::gpu::decode_policy<kvproof::gpu::cache, dim, ratio>>(p);       \
  }
#define KVPROOF_DECODE_RATIOS(name, cache, dim) \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 1)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 2)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 3)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 4)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 5)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 6)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 7)     \
  KVPROOF_DECODE_ENTRY(name, cache, dim, 8)
#define KVPROOF_DECODE_ENTRIES(format, dim) \
  KVPROOF_DECODE_RATIOS(decode_##format, one_part<kvproof::spec::format_id::format>, dim)
#define KVPROOF_DECODE_TIERS_ENTRIES(dim) KVPROOF_DECODE_RATIOS(decode_tiers, two_tiers, dim)

#define KVPROOF_QUANTIZE_ENTRY_AS(name, format, dim, gather)                                       \
  extern "C" __global__ void __launch_bounds__(                                                    \
      kvproof::gpu::quantize_threads(kvproof::spec::format_id::format, dim),                       \
      1024 / kvproof::gpu::quantize_threads(kvproof::spec::format_id::format, dim))                \
      name##_##format##_d##dim##_kernel(const __grid_constant__ kvproof::gpu::quantize_params p) { \
    kvproof::gpu::quantize<kvproof::spec::format_id::format, dim, gather>(p);                      \
  }
#define KVPROOF_QUANTIZE_ENTRIES(format, dim)             \
  KVPROOF_QUANTIZE_ENTRY_AS(quantize, format, dim, false) \
  KVPROOF_QUANTIZE_ENTRY_AS(gather_quantize, format, dim, true)

#define KVPROOF_DEMOTE_ENTRY(dim)                                                          \
  extern "C" __global__ void __launch_bounds__(kvproof::gpu::demote_threads(dim),          \
                                               1024 / kvproof::gpu::demote_threads(dim))   \
      demote_k8v4_d##dim##_kernel(const __grid_constant__ kvproof::gpu::demote_params p) { \
    kvproof::gpu::demote<dim>(p);                                                          \
  }

#define KVPROOF_SCORE_UPDATE_ENTRY(ratio)                                             \
  extern "C" __global__ void __launch_bounds__(kvproof::gpu::score_update_threads, 8) \
      score_update_g##ratio##_kernel(                                                 \
          const __grid_constant__ kvproof::gpu::score_update_params p) {              \
    kvproof::gpu::score_update<ratio>(p);                                             \
  }
