// run: plain
/* Query and synchronize of an event that was recorded inside a capture that is still on, in each mode. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream();
  for (auto mode : MODES) {
    for (int call = 0; call < 2; call++) {
      hipEvent_t event = new_event();
      CHECK(hipStreamBeginCapture(stream, mode));
      launch_busy(stream, 1000);
      CHECK(hipEventRecord(event, stream));
      hipError_t code = call == 0 ? hipEventQuery(event) : hipEventSynchronize(event);
      printf("%s, %s: %s, capture %s\n", mode_name(mode), call == 0 ? "query" : "synchronize", hipGetErrorName(code),
             status_of(stream));
      end_of_capture(stream);
      CHECK(hipEventDestroy(event));
    }
  }
  printf("%016llx\n", whole_work(new_stream(), 1, 60));
  return passed();
}
