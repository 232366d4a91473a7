// run: plain
/* A wait for an event that was not recorded yet is none, even if it is recorded right after; queries and
 * synchronizations of one succeed. */
#include "check.h"

int main() {
  const size_t n = 1000;
  hipStream_t held, free_one;
  CHECK(hipStreamCreate(&held));
  CHECK(hipStreamCreate(&free_one));
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  Gate gate;
  Words want = pattern_words(n, 9);
  gw_u64 *data = device_words(want);

  gate.close(held);
  launch_mix(held, data, data, n, 1);
  CHECK(hipStreamWaitEvent(free_one, event, 0));
  CHECK(hipEventQuery(event));
  CHECK(hipEventSynchronize(event));
  CHECK(hipEventRecord(event, held));
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  gw_u64 *other = nullptr;
  CHECK(hipHostMalloc((void **)&other, n * sizeof(gw_u64), 0));
  Words others = pattern_words(n, 10);
  memcpy(other, others.data(), n * sizeof(gw_u64));
  launch_mix(free_one, other, other, n, 2);
  CHECK(hipStreamSynchronize(free_one));
  cpu_mix(others, others, 2);
  SAME(other, others.data(), n * sizeof(gw_u64), "the stream that waits for nothing");
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  printf("a wait before the first record waits for nothing\n");

  CHECK(hipStreamWaitEvent(free_one, event, 0));
  launch_mix(free_one, data, data, n, 3);
  EXPECT(hipStreamQuery(free_one), hipErrorNotReady);
  gate.open();
  CHECK(hipStreamSynchronize(free_one));
  CHECK(hipEventQuery(event));
  cpu_mix(want, want, 1);
  cpu_mix(want, want, 3);
  SAME_WORDS(data, want, "the stream that waits for the record");
  printf("a wait behind it waits %016llx\n", digest_of(want));
  return passed();
}
