// run: plain
/* Kernels without arguments, with and without a list for them, between others; and with dynamic shared memory, up to what
 * the device has and beyond. */
#include "check.h"

__global__ void nothing() {}
extern __shared__ gw_u64 words[];
__global__ void shared_only() { words[threadIdx.x] = threadIdx.x; }

int main() {
  const size_t n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  void *empty[1] = {nullptr};
  for (gw_u64 i = 0; i < 30; i++) {
    if (i % 10 == 0) launch_busy(stream, MS);
    launch_mix(stream, data, data, n, i);
    cpu_mix(want, want, i);
    if (i % 3 == 0) CHECK(hipLaunchKernel((const void *)nothing, dim3(3), dim3(64), nullptr, 0, stream));
    if (i % 3 == 1) CHECK(hipLaunchKernel((const void *)nothing, dim3(3), dim3(64), empty, 0, stream));
    if (i % 3 == 2) nothing<<<dim3(3), dim3(64), 0, stream>>>();
    CHECK(hipGetLastError());
  }
  for (size_t bytes : {size_t(0), size_t(1024), size_t(65536), size_t(65537), size_t(1) << 20}) {
    hipError_t error =
        hipLaunchKernel((const void *)shared_only, dim3(4), dim3(128), nullptr, bytes, stream);
    printf("%zu bytes: ", bytes);
    show("dynamic shared memory", error);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "kernels without arguments in between");
  printf("%016llx\n", digest_of(want));
  show("the function's limit", hipFuncSetAttribute((const void *)shared_only,
                                                   hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
  show("the limit of no function",
       hipFuncSetAttribute(nullptr, hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
  show("its cache", hipFuncSetCacheConfig((const void *)shared_only, hipFuncCachePreferShared));
  hipFuncAttributes attributes;
  show("its attributes", hipFuncGetAttributes(&attributes, (const void *)nothing));
  show("those of no function", hipFuncGetAttributes(&attributes, nullptr));
  int blocks = 0;
  show("its occupancy",
       hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)nothing, 256, 0));
  printf("%d blocks\n", blocks);
  return passed();
}
