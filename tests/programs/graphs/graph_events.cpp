// run: plain
/* Graphs that record an event and wait for one: the event means what its last record says, in the order of the calls, and
 * who asks for it right after the launch does not find it complete before it is. */
#include "check.h"

static const size_t N = 600;

int main() {
  hipStream_t stream, other;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);

  hipGraph_t graph, captured;
  hipGraphNode_t child, record;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 3 * MS);
  launch_mix(stream, a, b, N, 1);
  CHECK(hipStreamEndCapture(stream, &captured));
  CHECK(hipGraphCreate(&graph, 0));
  CHECK(hipGraphAddChildGraphNode(&child, graph, nullptr, 0, captured));
  CHECK(hipGraphAddEventRecordNode(&record, graph, &child, 1, event));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (gw_u64 round = 0; round < 8; round++) {
    CHECK(hipGraphLaunch(exec, stream));
    cpu_mix(wa, wb, 1);
    CHECK(hipStreamWaitEvent(other, event, 0));
    launch_mix(other, b, a, N, 10 + round);
    cpu_mix(wb, wa, 10 + round);
    CHECK(hipEventSynchronize(event));
    CHECK(hipEventRecord(event, other));
    CHECK(hipStreamWaitEvent(stream, event, 0));
  }
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipEventQuery(event));
  SAME_WORDS(a, wa, "graphs that record");
  SAME_WORDS(b, wb, "graphs that record");
  printf("events %016llx %016llx\n", digest_of(wa), digest_of(wb));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipGraphDestroy(captured));
  CHECK(hipEventDestroy(event));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(other));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
