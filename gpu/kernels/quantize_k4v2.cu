// Quantize + pack, k4v2.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/quantize_kernel.cuh"

KVPROOF_QUANTIZE_ENTRY(k4v2, 64)
KVPROOF_QUANTIZE_ENTRY(k4v2, 128)
