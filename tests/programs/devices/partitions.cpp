// run: --arch gfx942 --partitions 4 | from-hip 7 | env HIP_VISIBLE_DEVICES=2,0
/* Two of the four partitions of a device, in another order than the driver's: each has its share of memory and compute units, and its
 * own work. */
#include "check.h"

int main() {
  int count = 0;
  CHECK(hipGetDeviceCount(&count));
  REQUIRE(count == 2, "%d devices", count);
  const size_t n = 900;
  hipStream_t streams[2];
  gw_u64 *words[2];
  Words want[2];
  for (int device = 0; device < count; device++) {
    CHECK(hipSetDevice(device));
    hipDeviceProp_t properties;
    size_t least = 0, most = 0;
    CHECK(hipGetDeviceProperties(&properties, device));
    CHECK(hipMemGetInfo(&least, &most));
    char address[32];
    CHECK(hipDeviceGetPCIBusId(address, sizeof address, device));
    printf("%s: %d units, %zu MiB\n", address, properties.multiProcessorCount, most >> 20);
    CHECK(hipStreamCreateWithFlags(&streams[device], hipStreamNonBlocking));
    want[device] = pattern_words(n, (gw_u64)device);
    words[device] = device_words(want[device]);
    CHECK(hipDeviceSynchronize());
  }
  for (gw_u64 round = 0; round < 20; round++) {
    for (int device = 0; device < count; device++) {
      CHECK(hipSetDevice(device));
      launch_busy(streams[device], MS / 4);
      launch_mix(streams[device], words[device], words[device], n, round);
      cpu_mix(want[device], want[device], round);
    }
  }
  for (int device = 0; device < count; device++) {
    CHECK(hipSetDevice(device));
    CHECK(hipStreamSynchronize(streams[device]));
    SAME_WORDS(words[device], want[device], "a partition's work");
    printf("%016llx\n", digest_of(want[device]));
    CHECK(hipStreamDestroy(streams[device]));
    CHECK(hipFree(words[device]));
  }
  return passed();
}
