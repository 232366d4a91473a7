// loaded: library
/* An interposer to be preloaded: it counts two functions of HIP, and passes on to the next ones. */
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

static int counts[2];

extern "C" int interposed(int which) { return __atomic_load_n(&counts[which], __ATOMIC_SEQ_CST); }

extern "C" hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                      hipStream_t stream) {
  auto next = (decltype(&hipLaunchKernel))dlsym(RTLD_NEXT, "hipLaunchKernel");
  __atomic_fetch_add(&counts[0], 1, __ATOMIC_SEQ_CST);
  return next(function, grid, block, arguments, shared, stream);
}

extern "C" hipError_t hipStreamSynchronize(hipStream_t stream) {
  auto next = (decltype(&hipStreamSynchronize))dlsym(RTLD_NEXT, "hipStreamSynchronize");
  __atomic_fetch_add(&counts[1], 1, __ATOMIC_SEQ_CST);
  return next(stream);
}
