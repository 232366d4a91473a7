// run: every-mode
/* Work in flight that goes on only when the host says so, and the host waits for the end of its input: whoever closes it
 * may be another program that waits for the GPU. Says "waiting" when the work is in flight. */
#include "processes.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  void *memory = nullptr;
  CHECK(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory));
  volatile uint64_t *flag = (volatile uint64_t *)memory;
  *flag = 0;
  Words want = pattern_words(1000, 4);
  gw_u64 *data = device_words(want);
  CHECK(hipStreamWaitValue64(stream, memory, 1, hipStreamWaitValueEq, ~0ull));
  launch_mix(stream, data, data, want.size(), 1);
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  printf("waiting\n");
  wait_for_end_of_input();
  *flag = 1;
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(want, want, 1);
  SAME_WORDS(data, want, "the work behind the wait");
  return passed();
}
