// run: loads module_kernels | logs crowded
/* A launch that the runtime refuses for a reason that only it knows. The error comes from the call or, where that was
 * deferred, once from a call that waits; the stream goes on.
 * Argument 1: module_kernels by --genco. */
#include "check.h"
#include <hip/hip_ext.h>

#if HIP_VERSION_MAJOR < 6
/* Static and dynamic shared memory together are too much. */
__global__ void crowded(gw_u64 *out) {
  __shared__ gw_u64 fixed[6 * 1024];
  extern __shared__ gw_u64 more[];
  fixed[threadIdx.x] = more[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = fixed[63 - threadIdx.x] + more[threadIdx.x];
}
#endif

int main(int argc, char **argv) {
  REQUIRE(argc == 2, "argument 1 is module_kernels");
  const size_t n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want), *out = device_words(Words(64));
  launch_mix(stream, data, data, n, 1);
  void *arguments[] = {&out};
#if HIP_VERSION_MAJOR < 6
  (void)argv;
  hipError_t launched = hipLaunchKernel((const void *)crowded, dim3(1), dim3(64), arguments, 60 * KIB, stream);
#else
  /* 6.4.3 and 7.2.4 launch that. But they want blocks of one size, which the compiler takes for granted, and here the last one
   * is smaller. */
  hipModule_t module;
  hipFunction_t crowded;
  CHECK(hipModuleLoad(&module, argv[1]));
  CHECK(hipModuleGetFunction(&crowded, module, "crowded"));
  hipError_t launched =
      hipExtModuleLaunchKernel(crowded, 100, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr, nullptr, nullptr, 0);
#endif
  (void)hipGetLastError();
  launch_mix(stream, data, data, n, 2);
  hipError_t waited = hipStreamSynchronize(stream);
  REQUIRE((launched == hipSuccess) != (waited == hipSuccess), "the launch: %s, the wait: %s", hipGetErrorName(launched),
          hipGetErrorName(waited));
  printf("%s, once\n", hipGetErrorName(launched == hipSuccess ? waited : launched));
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(want, want, 1);
  cpu_mix(want, want, 2);
  SAME_WORDS(data, want, "what was launched before and behind it");
  printf("the stream goes on %016llx\n", digest_of(want));
  return passed();
}
