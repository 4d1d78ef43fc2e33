// Quantize + pack, of all rows or of selected ones, k4v2.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/quantize_kernel.cuh"

KVPROOF_QUANTIZE_ENTRIES(k4v2, 64)
KVPROOF_QUANTIZE_ENTRIES(k4v2, 128)
