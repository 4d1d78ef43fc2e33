// Decode attention, k8v4, head_dim 64: one entry point a GQA ratio.
#include "gpu/kernels/decode_kernel.cuh"
#include "gpu/kernels/entry_points.cuh"

KVPROOF_DECODE_ENTRIES(k8v4, 64)
