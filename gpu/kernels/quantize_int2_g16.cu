// Quantize + pack, of all rows or of selected ones, int2_g16.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/quantize_kernel.cuh"

KVPROOF_QUANTIZE_ENTRIES(int2_g16, 64)
KVPROOF_QUANTIZE_ENTRIES(int2_g16, 128)
