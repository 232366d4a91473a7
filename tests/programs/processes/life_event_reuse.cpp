// run: plain
/* Events are destroyed while recorded and waited for, and made again: a handle that comes again was never recorded. */
#include "work.h"

int main() {
  hipStream_t first = new_stream(), second = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  int fresh = 0;
  for (int i = 0; i < 150; i++) {
    hipEvent_t event;
    CHECK(hipEventCreateWithFlags(&event, i % 2 ? hipEventDisableTiming : hipEventDefault));
    fresh += hipEventQuery(event) == hipSuccess;
    if (i % 10 == 0) launch_busy(first, 200000);
    sum.launch(first, 1);
    CHECK(hipEventRecord(event, first));
    CHECK(hipStreamWaitEvent(second, event, 0));
    CHECK(hipEventDestroy(event));
    sum.launch(second, 1);
    hipEvent_t back = new_event();
    CHECK(hipEventRecord(back, second));
    CHECK(hipStreamWaitEvent(first, back, 0));
    CHECK(hipEventDestroy(back));
  }
  CHECK(hipStreamSynchronize(first));
  CHECK(hipStreamSynchronize(second));
  printf("%d fresh %016llx\n", fresh, sum.check("order by events that are gone"));
  return passed();
}
