// run: every-mode
/* Stream capture and graph launches: the captured commands run at each launch, in order, between other work
 * of the stream. Two streams are captured into one graph by events. */
#include "check.h"

static const size_t N = 1500;

int main() {
  hipStream_t stream, side;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&side, hipStreamNonBlocking));
  hipEvent_t fork_event, join_event;
  CHECK(hipEventCreateWithFlags(&fork_event, hipEventDisableTiming));
  CHECK(hipEventCreateWithFlags(&join_event, hipEventDisableTiming));
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);

  hipGraph_t graph;
  hipGraphExec_t exec;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  hipStreamCaptureStatus status;
  CHECK(hipStreamIsCapturing(stream, &status));
  REQUIRE(status == hipStreamCaptureStatusActive, "capture status %d", (int)status);
  for (gw_u64 i = 0; i < 5; i++) launch_mix(stream, a, a, N, i);
  CHECK(hipEventRecord(fork_event, stream));
  CHECK(hipStreamWaitEvent(side, fork_event, 0));
  launch_busy(side, 2 * MS);
  launch_mix(side, b, a, N, 50);
  CHECK(hipEventRecord(join_event, side));
  CHECK(hipStreamWaitEvent(stream, join_event, 0));
  launch_mix(stream, a, b, N, 60);
  CHECK(hipStreamEndCapture(stream, &graph));
  SAME_WORDS(a, wa, "capture itself runs nothing");
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));

  for (gw_u64 round = 0; round < 10; round++) {
    launch_mix(stream, b, a, N, 100 + round);
    cpu_mix(wb, wa, 100 + round);
    CHECK(hipGraphLaunch(exec, stream));
    for (gw_u64 i = 0; i < 5; i++) cpu_mix(wa, wa, i);
    cpu_mix(wb, wa, 50);
    cpu_mix(wa, wb, 60);
    launch_mix(stream, a, b, N, 200 + round);
    cpu_mix(wa, wb, 200 + round);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, wa, "graph launches between kernels");
  SAME_WORDS(b, wb, "graph launches between kernels");
  printf("graphs %016llx %016llx\n", digest_of(wa), digest_of(wb));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipEventDestroy(fork_event));
  CHECK(hipEventDestroy(join_event));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(side));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
