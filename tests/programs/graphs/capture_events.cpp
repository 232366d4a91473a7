// run: plain
/* Events inside a capture: what a captured event answers, and that an event recorded outside joins nothing. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), side = new_stream();
  hipEvent_t inside = new_event(), outside = new_event(), never = new_event();
  launch_busy(side, 1000);
  CHECK(hipEventRecord(outside, side));
  CHECK(hipStreamSynchronize(side));

  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  CHECK(hipEventRecord(inside, stream));
  SHOW(hipStreamWaitEvent(stream, inside, 0));
  SHOW(hipStreamWaitEvent(stream, never, 0));
  printf("  %s\n", status_of(stream));
  launch_busy(stream, 1000);
  end_of_capture(stream);

  puts("an event from outside");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  SHOW(hipStreamWaitEvent(stream, outside, 0));
  printf("  %s\n", status_of(stream));
  end_of_capture(stream);

  puts("recorded again outside");
  CHECK(hipEventRecord(inside, side));
  CHECK(hipStreamSynchronize(side));
  SHOW(hipEventQuery(inside));
  SHOW(hipEventSynchronize(inside));

  puts("an event of a capture that has ended");
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  CHECK(hipEventRecord(inside, stream));
  end_of_capture(stream);
  hipEvent_t timed;
  CHECK(hipEventCreate(&timed));
  CHECK(hipEventRecord(timed, stream));
  CHECK(hipStreamSynchronize(stream));
  float ms = 0;
  SHOW(hipEventElapsedTime(&ms, timed, timed));
  return passed();
}
