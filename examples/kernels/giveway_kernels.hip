/* The project's kernels as one object, for programs whose host code another compiler than hipcc makes. */
#include <hip/hip_runtime.h>

#include "giveway_kernels.h"
