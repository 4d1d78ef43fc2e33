// Running significance of tokens after a decode step, by GQA ratio.
#include "gpu/kernels/entry_points.cuh"
#include "gpu/kernels/score_update_kernel.cuh"

KVPROOF_SCORE_UPDATE_ENTRY(1)
KVPROOF_SCORE_UPDATE_ENTRY(2)
KVPROOF_SCORE_UPDATE_ENTRY(3)
KVPROOF_SCORE_UPDATE_ENTRY(4)
KVPROOF_SCORE_UPDATE_ENTRY(5)
KVPROOF_SCORE_UPDATE_ENTRY(6)
KVPROOF_SCORE_UPDATE_ENTRY(7)
KVPROOF_SCORE_UPDATE_ENTRY(8)
