// run: plain
/* One relaxed capture that two threads add to, one after the other. */
#include <thread>

#include "capture.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(6);
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_mix(stream, sum.device, sum.device, sum.want.size(), 1);
  std::thread([&] {
    printf("another thread sees it %s\n", status_of(stream));
    launch_mix(stream, sum.device, sum.device, sum.want.size(), 2);
  }).join();
  launch_mix(stream, sum.device, sum.device, sum.want.size(), 3);
  hipGraph_t graph = nullptr;
  std::thread([&] { CHECK(hipStreamEndCapture(stream, &graph)); }).join();
  hipGraphExec_t exec = instance_of(graph);
  for (int i = 0; i < 5; i++) {
    CHECK(hipGraphLaunch(exec, stream));
    sum.replayed(1, 3);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("captured by two threads"));
  return passed();
}
