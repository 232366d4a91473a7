// run: plain
/* Pinned memory in a stream's order: a copy from it has what the kernel before it wrote there, and what comes behind the
 * copy may write there again; the host's own change comes behind an event. */
#include "check.h"

int main() {
  const size_t n = 2500, bytes = n * sizeof(gw_u64);
  hipStream_t stream;
  hipEvent_t copied;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&copied, hipEventDisableTiming));
  gw_u64 *pinned = nullptr;
  CHECK(hipHostMalloc((void **)&pinned, bytes, hipHostMallocMapped));
  Words host = pattern_words(n, 1), on_device = pattern_words(n, 2);
  memcpy(pinned, host.data(), bytes);
  gw_u64 *device = device_words(on_device);
  for (gw_u64 i = 0; i < 40; i++) {
    if (i % 8 == 0) launch_busy(stream, MS / 2);
    launch_mix(stream, pinned, pinned, n, i);
    cpu_mix(host, host, i);
    CHECK(hipMemcpyAsync(device, pinned, bytes, hipMemcpyHostToDevice, stream));
    on_device = host;
    launch_mix(stream, pinned, device, n, i + 100);
    cpu_mix(host, on_device, i + 100);
    launch_mix(stream, device, pinned, n, i + 200);
    cpu_mix(on_device, host, i + 200);
    CHECK(hipMemcpyAsync(pinned, device, bytes, hipMemcpyDeviceToHost, stream));
    host = on_device;
    if (i % 10 == 9) {
      CHECK(hipEventRecord(copied, stream));
      CHECK(hipEventSynchronize(copied));
      SAME(pinned, host.data(), bytes, "pinned memory behind an event");
      fill_pattern(pinned, bytes, i);
      host = pattern_words(n, i);
    }
  }
  CHECK(hipStreamSynchronize(stream));
  SAME(pinned, host.data(), bytes, "pinned memory at the end");
  SAME_WORDS(device, on_device, "device memory at the end");
  printf("%016llx %016llx\n", digest_of(host), digest_of(on_device));
  return passed();
}
