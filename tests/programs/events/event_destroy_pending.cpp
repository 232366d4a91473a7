// run: plain
/* Events that are destroyed while their record and waits for it are pending, and whose handles come again. */
#include "check.h"

int main() {
  const size_t n = 700;
  hipStream_t streams[3];
  for (auto &stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words want = pattern_words(n, 3);
  gw_u64 *data = device_words(want);
  Gate gate;
  gate.close(streams[0]);
  for (gw_u64 i = 0; i < 120; i++) {
    hipStream_t from = streams[i % 3], to = streams[(i + 1) % 3];
    launch_mix(from, data, data, n, i);
    cpu_mix(want, want, i);
    hipEvent_t event;
    CHECK(hipEventCreateWithFlags(&event, i % 2 ? hipEventDisableTiming : hipEventDefault));
    CHECK(hipEventRecord(event, from));
    CHECK(hipStreamWaitEvent(to, event, 0));
    CHECK(hipEventDestroy(event));
  }
  EXPECT(hipStreamQuery(streams[0]), hipErrorNotReady);
  gate.open();
  for (auto stream : streams) CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "events destroyed while they were waited for");
  printf("destroyed while waited for %016llx\n", digest_of(want));

  /* Recorded, never waited for, destroyed; and destroyed without a record. */
  gate.close(streams[1]);
  for (int i = 0; i < 50; i++) {
    hipEvent_t event;
    CHECK(hipEventCreate(&event));
    if (i % 2) CHECK(hipEventRecord(event, streams[1]));
    CHECK(hipEventDestroy(event));
  }
  launch_mix(streams[1], data, data, n, 5);
  cpu_mix(want, want, 5);
  gate.open();
  CHECK(hipStreamSynchronize(streams[1]));
  SAME_WORDS(data, want, "the work behind destroyed events");
  printf("destroyed behind a record\n");
  return passed();
}
