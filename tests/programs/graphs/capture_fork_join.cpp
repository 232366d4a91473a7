// run: plain
/* A capture that events carry to four other streams and back: all of it is one graph. In 5.2.3
 * the branches stay in their capture when it ends, so nothing else is sent to them. */
#include "capture.h"

int main() {
  const int branches = 4;
  hipStream_t origin = new_stream(), side[branches];
  hipEvent_t fork = new_event(), join[branches];
  std::vector<Sum> sums;
  for (int i = 0; i < branches; i++) {
    side[i] = new_stream();
    join[i] = new_event();
    sums.emplace_back((gw_u64)i);
  }
  CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeGlobal));
  launch_busy(origin, MS);
  CHECK(hipEventRecord(fork, origin));
  for (int i = 0; i < branches; i++) {
    printf("branch %d before: %s", i, status_of(side[i]));
    CHECK(hipStreamWaitEvent(side[i], fork, 0));
    printf(", after: %s\n", status_of(side[i]));
    for (gw_u64 k = 0; k < 3; k++)
      launch_mix(side[i], sums[(size_t)i].device, sums[(size_t)i].device, sums[(size_t)i].want.size(), k);
    CHECK(hipEventRecord(join[i], side[i]));
    CHECK(hipStreamWaitEvent(origin, join[i], 0));
  }
  launch_mix(origin, sums[0].device, sums[1].device, sums[0].want.size(), 77);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(origin, &graph));
  for (int i = 0; i < branches; i++) printf("branch %d at the end: %s\n", i, status_of(side[i]));
  size_t nodes = 0;
  CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
  printf("%zu nodes\n", nodes);
  hipGraphExec_t exec = instance_of(graph);
  for (int round = 0; round < 5; round++) {
    CHECK(hipGraphLaunch(exec, origin));
    for (auto &sum : sums) sum.replayed(0, 3);
    cpu_mix(sums[0].want, sums[1].want, 77);
    sums[2].launch(origin, 2);
  }
  CHECK(hipStreamSynchronize(origin));
  for (auto &sum : sums) printf("%016llx\n", sum.check("a branch"));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  for (int i = 0; i < branches; i++) {
    CHECK(hipStreamDestroy(side[i]));
    CHECK(hipEventDestroy(join[i]));
    sums[(size_t)i].release();
  }
  CHECK(hipEventDestroy(fork));
  CHECK(hipStreamDestroy(origin));
  return passed();
}
