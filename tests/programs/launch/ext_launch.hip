// run: loads module_kernels | every-mode
/* The launch functions of hip_ext.h, as the ROCm libraries use them: with start and stop events of the launch
 * itself, by host function and by module function (hipExt and hipHcc). Argument 1: module_kernels by --genco.
 */
#include <hip/hip_ext.h>

#include "check.h"

/* hipHccModuleLaunchKernel is deprecated, and still in use. */
#pragma clang diagnostic ignored "-Wdeprecated-declarations"

static float between(hipEvent_t start, hipEvent_t stop) {
  float ms = -1;
  CHECK(hipEventSynchronize(stop));
  CHECK(hipEventElapsedTime(&ms, start, stop));
  return ms;
}

int main(int argc, char **argv) {
  REQUIRE(argc > 1, "usage: ext_launch CODE_OBJECT");
  const size_t n = 2000;
  hipStream_t stream;
  hipEvent_t start, stop;
  hipModule_t module;
  hipFunction_t mix_function, busy_function;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  CHECK(hipModuleLoad(&module, argv[1]));
  CHECK(hipModuleGetFunction(&mix_function, module, "mix"));
  CHECK(hipModuleGetFunction(&busy_function, module, "busy"));

  gw_u64 nanoseconds = 30 * MS;
  gw_u32 rounds = 1;
  void *busy_params[] = {&nanoseconds, &rounds};
  CHECK(hipExtLaunchKernel((const void *)busy, dim3(1), dim3(64), busy_params, 0, stream, start, stop, 0));
  EXPECT(hipEventQuery(stop), hipErrorNotReady);
  REQUIRE(between(start, stop) >= 29.9f, "30 ms by hipExtLaunchKernel took %g ms",
          (double)between(start, stop));
  CHECK(hipExtModuleLaunchKernel(busy_function, 64, 1, 1, 64, 1, 1, 0, stream, busy_params, nullptr, start,
                                 stop));
  EXPECT(hipEventQuery(stop), hipErrorNotReady);
  REQUIRE(between(start, stop) >= 29.9f, "30 ms by hipExtModuleLaunchKernel took %g ms",
          (double)between(start, stop));
  printf("events of a launch enclose it\n");

  Words want = pattern_words(n, 1);
  gw_u64 *a = device_words(want), *dst = a;
  const gw_u64 *src = a;
  gw_u32 count = (gw_u32)n;
  gw_u64 value = 0;
  void *params[] = {&dst, &src, &count, &value};
  for (int i = 0; i < 60; i++) {
    value = (gw_u64)i;
    hipEvent_t first = i % 2 ? start : nullptr, last = i % 4 > 1 ? stop : nullptr;
    switch (i % 4) {
      case 0:
      case 1:
        CHECK(hipExtLaunchKernel((const void *)mix, dim3(8), dim3(256), params, 0, stream, first, last, 0));
        break;
      case 2: /* the module functions count work-items, not blocks */
        CHECK(hipExtModuleLaunchKernel(mix_function, 2048, 1, 1, 256, 1, 1, 0, stream, params, nullptr, first,
                                       last));
        break;
      default:
        CHECK(hipHccModuleLaunchKernel(mix_function, 2048, 1, 1, 256, 1, 1, 0, stream, params, nullptr, first,
                                       last));
        break;
    }
    cpu_mix(want, want, value);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "launches by hip_ext.h");
  printf("launches by hip_ext.h %016llx\n", digest_of(want));
  CHECK(hipModuleUnload(module));
  CHECK(hipEventDestroy(start));
  CHECK(hipEventDestroy(stop));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(a));
  return passed();
}
