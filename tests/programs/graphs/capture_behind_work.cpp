// run: plain
/* A stream begins to capture right behind work that has not run yet; that work is no part of the graph, and the graph comes
 * after it. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  for (int round = 0; round < 20; round++) {
    if (round % 5 == 0) launch_busy(stream, 5 * MS);
    sum.launch(stream, 8);
    CHECK(hipStreamBeginCapture(stream, MODES[round % 3]));
    launch_mix(stream, sum.device, sum.device, sum.want.size(), 900 + (gw_u64)round);
    hipGraph_t graph;
    CHECK(hipStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 1, "round %d: %zu nodes", round, nodes);
    hipGraphExec_t exec = instance_of(graph);
    sum.launch(stream, 2);
    CHECK(hipGraphLaunch(exec, stream));
    sum.replayed(900 + (gw_u64)round, 1);
    sum.launch(stream, 2);
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  printf("%016llx\n", sum.check("work, graph, work"));
  return passed();
}
