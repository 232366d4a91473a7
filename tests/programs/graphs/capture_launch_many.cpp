// run: plain
/* One graph, launched 150 times on two streams in turn, beside plain launches and events between them. */
#include "capture.h"

int main() {
  hipStream_t first = new_stream(), second = new_stream(), plain = new_stream();
  hipEvent_t event = new_event();
  Sum sum(1), beside(2);
  CHECK(hipDeviceSynchronize());
  CHECK(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
  for (gw_u64 i = 0; i < 5; i++) launch_mix(first, sum.device, sum.device, sum.want.size(), 500 + i);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(first, &graph));
  hipGraphExec_t exec = instance_of(graph);
  for (int round = 0; round < 150; round++) {
    hipStream_t here = round % 2 ? first : second, there = round % 2 ? second : first;
    CHECK(hipGraphLaunch(exec, here));
    sum.replayed(500, 5);
    beside.launch(plain, 1);
    CHECK(hipEventRecord(event, here));
    CHECK(hipStreamWaitEvent(there, event, 0));
    sum.launch(there, 1);
    CHECK(hipEventRecord(event, there));
    CHECK(hipStreamWaitEvent(here, event, 0));
  }
  /* The graph goes while launches of it may still be on their way. */
  CHECK(hipGraphDestroy(graph));
  CHECK(hipDeviceSynchronize());
  CHECK(hipGraphExecDestroy(exec));
  printf("%016llx %016llx\n", sum.check("graphs in turn"), beside.check("beside them"));
  return passed();
}
