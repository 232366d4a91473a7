// run: env MALLOC_ARENA_MAX=1 | every-mode
/* Streams come and go all the time; each does its own work, and the process does not grow with them. */
#include "check.h"

#include <malloc.h>

static const int AT_ONCE = 8, WARM = 20, CYCLES = 60;

int main() {
  Words model(64, 0);
  gw_u64 *device = device_words(model);
  hipEvent_t last;
  CHECK(hipEventCreateWithFlags(&last, hipEventDisableTiming));
  auto cycle = [&](int i) {
    hipStream_t streams[AT_ONCE];
    for (int s = 0; s < AT_ONCE; s++) {
      CHECK(hipStreamCreateWithFlags(&streams[s], (i + s) % 2 ? hipStreamNonBlocking : hipStreamDefault));
      if (s != 0) CHECK(hipStreamWaitEvent(streams[s], last, 0));
      launch_mix(streams[s], device, device, 64, i + s);
      cpu_mix(model, model, i + s);
      CHECK(hipEventRecord(last, streams[s]));
    }
    if (i % 2) CHECK(hipEventSynchronize(last));
    for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
    CHECK(hipDeviceSynchronize());
  };
  for (int i = 0; i < WARM; i++) cycle(i);
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < CYCLES; i++) cycle(i);
  size_t now = mallinfo2().uordblks, most = before + CYCLES * AT_ONCE * 2900;
  /* What malloc has given and not got back. The runtime leaves 1050 bytes for each stream, and 250 for each mark behind
   * its commands and for each of three events at its end; a queue that is not used again would leave 1400 more. */
  REQUIRE(now < most, "%zu bytes more after %d streams", now - before, CYCLES * AT_ONCE);
  SAME_WORDS(device, model, "each stream's work, in order");
  CHECK(hipEventDestroy(last));
  CHECK(hipFree(device));
  return passed();
}
