// run: plain
/* hipStreamPerThread captures as another stream does, for each thread by itself. */
#include <thread>

#include "capture.h"

static void round_of(int number) {
  Sum sum((gw_u64)number);
  CHECK(hipStreamSynchronize(nullptr));
  CHECK(hipStreamBeginCapture(hipStreamPerThread, hipStreamCaptureModeThreadLocal));
  printf("thread %d: %s\n", number, status_of(hipStreamPerThread));
  for (gw_u64 i = 0; i < 3; i++) launch_mix(hipStreamPerThread, sum.device, sum.device, sum.want.size(), i);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(hipStreamPerThread, &graph));
  hipGraphExec_t exec = instance_of(graph);
  for (int i = 0; i < 4; i++) {
    CHECK(hipGraphLaunch(exec, hipStreamPerThread));
    sum.replayed(0, 3);
    gw_u64 before = sum.next;
    sum.launch(hipStreamPerThread, 1);
    (void)before;
  }
  CHECK(hipStreamSynchronize(hipStreamPerThread));
  printf("thread %d: %016llx\n", number, sum.check("a thread's graph"));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  sum.release();
}

int main() {
  round_of(0);
  for (int i = 1; i < 4; i++) std::thread(round_of, i).join();
  return passed();
}
