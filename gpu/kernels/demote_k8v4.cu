// Demotion of tokens, k8v4 to k4v2.
#include "gpu/kernels/demote_kernel.cuh"
#include "gpu/kernels/entry_points.cuh"

KVPROOF_DEMOTE_ENTRY(64)
KVPROOF_DEMOTE_ENTRY(128)
