// run: plain
/* A capture begins on a stream whose work waits for a value that the host stores when the capture has ended, and on one that
 * waits for a host function. Neither call waits for that, and what was captured is what was launched in between. */
#include "check.h"

#include <atomic>

static std::atomic<bool> gate;

static void called_back(hipStream_t, hipError_t, void *) {
  while (!gate) usleep(50);
}

int main() {
  const size_t n = 300;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  volatile uint32_t *opens;
  CHECK(hipHostMalloc((void **)&opens, 64, 0));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  for (gw_u64 round = 0; round < 8; round++) {
    *opens = 0, gate = false;
    if (round % 2) {
      CHECK(hipStreamAddCallback(stream, called_back, nullptr, 0));
    } else {
      CHECK(hipStreamWaitValue32(stream, (void *)opens, 1, hipStreamWaitValueEq, ~0u));
    }
    launch_mix(stream, data, data, n, round);
    cpu_mix(want, want, round);
    hipGraph_t graph;
    hipGraphExec_t exec;
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    launch_mix(stream, data, data, n, 100 + round);
    CHECK(hipStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 1, "the graph has %zu nodes", nodes);
    EXPECT(hipStreamQuery(stream), hipErrorNotReady);
    CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    *opens = 1, gate = true;
    /* By what it sees, once without any call that waits. */
    while (round % 4 == 0 && hipStreamQuery(stream) == hipErrorNotReady) usleep(100);
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    cpu_mix(want, want, 100 + round);
    SAME_WORDS(data, want, "the work and the graph");
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
    printf("round %llu\n", round);
  }
  (void)hipGetLastError();
  return passed();
}
