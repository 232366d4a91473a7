// run: plain
/* hipStreamWaitEvent and everything launched behind it return while the awaited work is pending: it is the device that
 * waits, through a chain of streams. */
#include "check.h"

int main() {
  const size_t n = 1500;
  hipStream_t streams[3];
  hipEvent_t events[3];
  for (auto &stream : streams) CHECK(hipStreamCreate(&stream));
  for (auto &event : events) CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Words want = pattern_words(n, 4);
  gw_u64 *data = device_words(want);
  Gate gate;
  gate.close(streams[0]);
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 3; i++) {
      if (round + i > 0) CHECK(hipStreamWaitEvent(streams[i], events[(i + 2) % 3], 0));
      launch_mix(streams[i], data, data, n, (gw_u64)(round * 3 + i));
      cpu_mix(want, want, (gw_u64)(round * 3 + i));
      CHECK(hipEventRecord(events[i], streams[i]));
    }
  }
  /* Here the host has passed thirty waits, and the first has not begun. */
  for (auto event : events) EXPECT(hipEventQuery(event), hipErrorNotReady);
  for (auto stream : streams) EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  printf("thirty waits, none of the host's\n");
  gate.open();
  CHECK(hipEventSynchronize(events[2]));
  for (auto event : events) CHECK(hipEventQuery(event));
  SAME_WORDS(data, want, "a chain through three streams");
  printf("in order %016llx\n", digest_of(want));
  return passed();
}
