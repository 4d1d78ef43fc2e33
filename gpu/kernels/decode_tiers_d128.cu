// Decode attention over both tiers of DiffKV, head_dim 128: one entry point a GQA ratio.
#include "gpu/kernels/decode_kernel.cuh"
#include "gpu/kernels/entry_points.cuh"

KVPROOF_DECODE_TIERS_ENTRIES(128)
