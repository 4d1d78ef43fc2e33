// Quantize + pack, of all rows or of selected ones, k8v4.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/quantize_kernel.cuh"

KVPROOF_QUANTIZE_ENTRIES(k8v4, 64)
KVPROOF_QUANTIZE_ENTRIES(k8v4, 128)
