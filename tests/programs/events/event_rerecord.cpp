// run: plain
/* An event that is recorded again while a stream waits for it: the waiter has the record that it saw, later waiters the
 * newer one. */
#include "check.h"

static const size_t N = 2000;

int main() {
  hipStream_t first, second, waiter;
  /* None of them holds up the null stream, which is used to look at memory. */
  for (auto stream : {&first, &second, &waiter}) CHECK(hipStreamCreateWithFlags(stream, hipStreamNonBlocking));
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Gate gate;
  Words want = pattern_words(N, 1), old = want;
  gw_u64 *data = device_words(want), *seen = device_words(want);

  /* The record that the waiter saw is complete, the newer one is not. */
  launch_mix(first, data, data, N, 1);
  cpu_mix(want, want, 1);
  CHECK(hipEventRecord(event, first));
  CHECK(hipStreamWaitEvent(waiter, event, 0));
  gate.close(second);
  CHECK(hipEventRecord(event, second));
  launch_mix(waiter, data, data, N, 2);
  cpu_mix(want, want, 2);
  CHECK(hipStreamSynchronize(waiter));
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  SAME_WORDS(data, want, "behind the older record");
  printf("a waiter keeps the record that it saw\n");

  /* The one that waits from now on has the newer one. */
  launch_mix(second, data, data, N, 3);
  CHECK(hipEventRecord(event, second));
  CHECK(hipStreamWaitEvent(first, event, 0));
  launch_mix(first, data, data, N, 4);
  EXPECT(hipStreamQuery(first), hipErrorNotReady);
  gate.open();
  CHECK(hipStreamSynchronize(first));
  CHECK(hipEventQuery(event));
  cpu_mix(want, want, 3);
  cpu_mix(want, want, 4);
  SAME_WORDS(data, want, "behind the newer record");
  printf("a later waiter has the newer one\n");

  /* One event through two streams, two hundred generations, each waited for by the other stream. */
  for (gw_u64 i = 0; i < 200; i++) {
    hipStream_t from = i % 2 ? second : first, to = i % 2 ? first : second;
    launch_mix(from, data, data, N, i);
    cpu_mix(want, want, i);
    CHECK(hipEventRecord(event, from));
    CHECK(hipStreamWaitEvent(to, event, 0));
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(data, want, "two hundred generations");
  SAME_WORDS(seen, old, "memory that nothing touches");
  printf("two hundred generations %016llx\n", digest_of(want));
  return passed();
}
