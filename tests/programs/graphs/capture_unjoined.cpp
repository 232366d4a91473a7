// run: plain
/* A branch that never comes back to the stream that began the capture. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), side = new_stream();
  hipEvent_t fork = new_event();
  Sum sum(9);
  for (auto mode : MODES) {
    puts(mode_name(mode));
    CHECK(hipStreamBeginCapture(stream, mode));
    launch_busy(stream, 1000);
    CHECK(hipEventRecord(fork, stream));
    CHECK(hipStreamWaitEvent(side, fork, 0));
    launch_mix(side, sum.device, sum.device, sum.want.size(), 1);
    end_of_capture(stream);
    printf("  branch %s\n", status_of(side));
    stream = next_for_capture(stream);
    side = next_for_capture(side);
  }
  sum.check("nothing of it ran");
  sum.launch(stream, 3);
  CHECK(hipStreamSynchronize(stream));
  printf("afterwards %016llx\n", sum.check("after all of it"));
  return passed();
}
