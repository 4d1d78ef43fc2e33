// Quantize + pack, int2_g16.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/quantize_kernel.cuh"

KVPROOF_QUANTIZE_ENTRY(int2_g16, 64)
KVPROOF_QUANTIZE_ENTRY(int2_g16, 128)
