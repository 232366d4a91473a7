// loaded: code object
/* A code object for module.hip, built with --genco: the project's kernels and one variable. */
#include <hip/hip_runtime.h>

#include "giveway_kernels.h"

extern "C" __device__ unsigned int module_table[8];
__device__ unsigned int module_table[8] = {1, 1, 2, 3, 5, 8, 13, 21};
