// run: loads preload_ends
/* A stream ends while another one's wait for an event is launched, which the program has submitted before: from HIP 7 on the runtime
 * reads other streams for a wait, so the two must not be inside it at once. A busy machine may let some pass: the library waits a
 * bounded time. */
#include "preload.h"

static const int ROUNDS = 20;

int main(int, char **argv) {
  preload(argv, argv[1], false);
  hipStream_t recorded = new_stream(), waiting = new_stream();
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Sum sum(1);
  for (int i = 0; i < ROUNDS; i++) {
    hipStream_t ends = new_stream();
    sum.launch(recorded, 2);
    CHECK(hipEventRecord(event, recorded));
    CHECK(hipStreamWaitEvent(waiting, event, 0));
    while (interposed(0) <= i) usleep(50);
    CHECK(hipStreamDestroy(ends));
    CHECK(hipStreamSynchronize(waiting));
  }
  printf("%d waits, %016llx\n", interposed(0), sum.check("work"));
  REQUIRE(interposed(1) < ROUNDS / 2, "%d of %d streams ended inside a wait", interposed(1), ROUNDS);
  return passed();
}
