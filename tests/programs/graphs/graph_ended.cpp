// run: plain
/* An executable graph that is destroyed while a launch of it waits behind other work: that launch is carried out, and every
 * later one of the same handle is refused. A new graph at the same place is another one. */
#include "check.h"

int main() {
  const size_t n = 300;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  hipGraph_t graph;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_mix(stream, data, data, n, 7);
  CHECK(hipStreamEndCapture(stream, &graph));
  for (int round = 0; round < 4; round++) {
    hipGraphExec_t exec, next;
    CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for (int i = 0; i < 3; i++) launch_busy(stream, MS / 10);
    CHECK(hipGraphLaunch(exec, stream));
    cpu_mix(want, want, 7);
    CHECK(hipGraphExecDestroy(exec));
    show("launch of a destroyed one", hipGraphLaunch(exec, stream));
    show("and again", hipGraphLaunch(exec, stream));
#if HIP_VERSION_MAJOR >= 7
    show("upload of it", hipGraphUpload(exec, stream));
#endif
    CHECK(hipGraphInstantiate(&next, graph, nullptr, nullptr, 0));
    CHECK(hipGraphLaunch(next, stream));
    cpu_mix(want, want, 7);
    if (round % 2) CHECK(hipStreamSynchronize(stream));
    CHECK(hipGraphExecDestroy(next));
    if (next != exec) EXPECT(hipGraphLaunch(exec, stream), hipErrorInvalidValue);
    (void)hipGetLastError();
    CHECK(hipStreamSynchronize(stream));
    show("at the end", hipGraphLaunch(next, stream));
  }
  SAME_WORDS(data, want, "every launch that was taken");
  return passed();
}
