// run: from-hip 7 | build --offload-compress
/* Kernels in a compressed bundle: the sizes of their arguments are known all the same, so that launches can be deferred. */
#include "check.h"

extern "C" __global__ void mix_twice(gw_u64 *a, gw_u32 n, gw_u64 value) {
  gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = gw_mix_step(a[i], a[i], i, value);
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words want = pattern_words(1000, 1);
  gw_u64 *a = device_words(want);
  for (int i = 0; i < 50; i++) {
    launch_mix(stream, a, a, 1000, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    mix_twice<<<dim3(4), dim3(256), 0, stream>>>(a, 0, 1); /* of nothing: which a device that does not know it leaves alone, too */
    CHECK(hipGetLastError());
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "kernels of a compressed bundle");
  printf("kernels of a compressed bundle %016llx\n", digest_of(want));
  CHECK(hipFree(a));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
