// run: plain
/* A capture in each mode: nothing runs while it lasts, and each launch of its graph runs it once, between other work. */
#include "capture.h"

int main() {
  for (auto mode : MODES) {
    hipStream_t stream = new_stream();
    Sum sum(7);
    CHECK(hipStreamBeginCapture(stream, mode));
    gw_u64 first = 1000;
    for (int i = 0; i < 4; i++) launch_mix(stream, sum.device, sum.device, sum.want.size(), first + (gw_u64)i);
    hipGraph_t graph;
    CHECK(hipStreamEndCapture(stream, &graph));
    sum.check("a capture runs nothing");
    hipGraphExec_t exec = instance_of(graph);
    for (int round = 0; round < 10; round++) {
      sum.launch(stream, round % 3);
      CHECK(hipGraphLaunch(exec, stream));
      sum.replayed(first, 4);
    }
    CHECK(hipStreamSynchronize(stream));
    printf("%s %016llx\n", mode_name(mode), sum.check("a graph between kernels"));
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
    CHECK(hipStreamDestroy(stream));
    sum.release();
  }
  return passed();
}
