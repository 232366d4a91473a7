// loaded: code object
/* A code object for module.hip and others, built with --genco: the project's kernels, another one and one variable. */
#include <hip/hip_runtime.h>

#include "giveway_kernels.h"

extern "C" __device__ unsigned int module_table[8];
__device__ unsigned int module_table[8] = {1, 1, 2, 3, 5, 8, 13, 21};

/* For error_deferred.hip, which it is never launched by. */
extern "C" __global__ void crowded(gw_u64 *out) { out[threadIdx.x] = threadIdx.x; }
