// run: plain
/* A graph that is captured anew updates the executable one, between launches that may not have run yet. */
#include "capture.h"

static hipGraph_t captured(hipStream_t stream, Sum &sum, gw_u64 first) {
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (gw_u64 i = 0; i < 3; i++) launch_mix(stream, sum.device, sum.device, sum.want.size(), first + i);
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(stream, &graph));
  return graph;
}

int main() {
  hipStream_t stream = new_stream(), recorder = new_stream();
  Sum sum(4);
  hipGraph_t graph = captured(recorder, sum, 0);
  hipGraphExec_t exec = instance_of(graph);
  CHECK(hipGraphDestroy(graph));
  gw_u64 first = 0;
  for (int round = 0; round < 12; round++) {
    CHECK(hipGraphLaunch(exec, stream));
    sum.replayed(first, 3);
    sum.launch(stream, 1);
    CHECK(hipStreamSynchronize(stream));
    first = 100 * (gw_u64)(round + 1);
    graph = captured(recorder, sum, first);
    hipGraphNode_t node = nullptr;
    hipGraphExecUpdateResult result;
    CHECK(hipGraphExecUpdate(exec, graph, &node, &result));
    REQUIRE(result == hipGraphExecUpdateSuccess, "round %d: update result %d", round, (int)result);
    CHECK(hipGraphDestroy(graph));
  }
  printf("%016llx\n", sum.check("updated graphs"));
  CHECK(hipGraphExecDestroy(exec));
  return passed();
}
