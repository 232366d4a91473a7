// run: plain
/* Captures begun twice, ended twice, ended elsewhere, not joined, and given up. */
#include <algorithm>
#include <thread>

#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), side = new_stream();
  hipEvent_t fork = new_event(), join = new_event();
  hipGraph_t graph = nullptr;
  Sum sum(5);

  puts("without a beginning");
  SHOW(hipStreamEndCapture(stream, &graph));
  SHOW(hipStreamEndCapture(nullptr, &graph));
  SHOW(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal));
  SHOW(hipStreamBeginCapture(stream, (hipStreamCaptureMode)7));
  printf("  %s\n", status_of(stream));

  puts("begun twice");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  SHOW(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  SHOW(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  end_of_capture(stream);
  end_of_capture(stream);

  puts("two at a time");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  CHECK(hipStreamBeginCapture(side, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  launch_busy(side, 1000);
  launch_busy(side, 1000);
  end_of_capture(stream);
  end_of_capture(side);

  puts("ended at a branch");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  CHECK(hipEventRecord(fork, stream));
  CHECK(hipStreamWaitEvent(side, fork, 0));
  SHOW(hipStreamEndCapture(side, &graph));
  printf("  %s, branch %s\n", status_of(stream), status_of(side));
  CHECK(hipEventRecord(join, side));
  CHECK(hipStreamWaitEvent(stream, join, 0));
  end_of_capture(stream);
  printf("  branch %s\n", status_of(side));

  for (auto mode : MODES) {
    printf("ended by another thread, %s\n", mode_name(mode));
    CHECK(hipStreamBeginCapture(stream, mode));
    launch_busy(stream, 1000);
    std::thread([&] { end_of_capture(stream); }).join();
    if (strcmp(status_of(stream), "none") != 0) end_of_capture(stream);
  }

  puts("nothing in it");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  end_of_capture(stream);

  sum.launch(stream, 5);
  CHECK(hipStreamSynchronize(stream));
  /* In 5.2.3 the branch is still said to capture, and a launch there is refused; in 7.2.4 it is neither. */
  printf("branch %s", status_of(side));
  gw_u64 *device = sum.device;
  gw_u32 count = 64;
  gw_u64 value = 1;
  void *arguments[] = {&device, &device, &count, &value};
  hipError_t code = hipLaunchKernel((const void *)mix, dim3(1), dim3(64), arguments, 0, side);
  printf(", launch %s\n", hipGetErrorName(code));
  if (code == hipSuccess) {
    Words first(sum.want.begin(), sum.want.begin() + count);
    cpu_mix(first, first, value);
    std::copy(first.begin(), first.end(), sum.want.begin());
    CHECK(hipStreamSynchronize(side));
  }
  printf("afterwards %016llx\n", sum.check("after all of it"));
  return passed();
}
