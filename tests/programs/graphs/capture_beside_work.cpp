// run: plain
/* 200 captures in global mode while another stream of the same thread has work that may be deferred or suspended: whoever
 * launches that, or looks how far it is, never touches the capture. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), busy_stream = new_stream(), blocking = new_stream(hipStreamDefault);
  Sum plain(1), captured(2), defaults(3);
  CHECK(hipDeviceSynchronize());
  for (int round = 0; round < 200; round++) {
    plain.launch(busy_stream, 2);
    if (round % 4 == 0) defaults.launch(blocking, 1);
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    launch_mix(stream, captured.device, captured.device, captured.want.size(), (gw_u64)round);
    plain.launch(busy_stream, 3);
    launch_mix(stream, captured.device, captured.device, captured.want.size(), (gw_u64)round + 1);
    REQUIRE(strcmp(status_of(stream), "active") == 0, "round %d: the capture is %s", round, status_of(stream));
    hipGraph_t graph;
    CHECK(hipStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 2, "round %d: %zu nodes", round, nodes);
    hipGraphExec_t exec = instance_of(graph);
    CHECK(hipGraphLaunch(exec, stream));
    captured.replayed((gw_u64)round, 2);
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  CHECK(hipDeviceSynchronize());
  printf("%016llx %016llx %016llx\n", plain.check("plain work"), captured.check("captured work"),
         defaults.check("a blocking stream's work"));
  return passed();
}
