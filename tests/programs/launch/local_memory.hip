// run: --arch gfx950 | from-hip 7 | build --offload-arch=gfx950
/* A device with 160 KiB of local memory: launches that take more than 64 KiB are deferred like others, and what is more than the device
 * has is refused at once. */
#include "check.h"

static const size_t N = 2000;

static hipError_t launch(hipStream_t stream, gw_u64 *to, gw_u64 *from, gw_u64 value, size_t local) {
  gw_u32 count = N;
  void *arguments[] = {&to, &from, &count, &value};
  return hipLaunchKernel((const void *)mix, dim3((unsigned)((N + 255) / 256)), dim3(256), arguments, local, stream);
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  int most = 0;
  CHECK(hipDeviceGetAttribute(&most, hipDeviceAttributeMaxSharedMemoryPerBlock, 0));
  printf("%d bytes\n", most);
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);
  CHECK(hipDeviceSynchronize());
  for (gw_u64 round = 0; round < 4; round++) {
    launch_busy(stream, MS);
    for (size_t local : {0, 64 << 10, (64 << 10) + 1, 100 << 10, 160 << 10}) {
      CHECK(launch(stream, a, b, round, local));
      cpu_mix(wa, wb, round);
    }
    show("more than there is", launch(stream, a, b, round, (160 << 10) + 1));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, wa, "the work");
  printf("%016llx\n", digest_of(wa));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
