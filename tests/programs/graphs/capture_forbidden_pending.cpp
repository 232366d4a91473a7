// run: plain
/* The same forbidden synchronizations and queries while other streams have work: a deferred launch must not make a call
 * wait, or answer, where the runtime refuses. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), other = new_stream();
  hipEvent_t done = new_event();
  gw_u64 *filled = device_alloc<gw_u64>(8);
  for (auto mode : MODES) {
    Sum sum(3);
    CHECK(hipDeviceSynchronize());
    for (int call = 0; call < 6; call++) {
      static const char *names[] = {"hipStreamSynchronize", "hipEventSynchronize", "hipDeviceSynchronize",
                                    "hipMemset",            "hipStreamQuery",      "hipEventQuery"};
      sum.launch(other, 3);
      CHECK(hipEventRecord(done, other));
      /* A query's answer must not depend on how far the device is. */
      if (call >= 4) CHECK(hipStreamSynchronize(other));
      CHECK(hipStreamBeginCapture(stream, mode));
      launch_busy(stream, 1000);
      hipError_t code = call == 0   ? hipStreamSynchronize(other)
                        : call == 1 ? hipEventSynchronize(done)
                        : call == 2 ? hipDeviceSynchronize()
                        : call == 3 ? hipMemset(filled, 0, 8)
                        : call == 4 ? hipStreamQuery(other)
                                    : hipEventQuery(done);
      printf("%s, %s: %s, capture %s\n", mode_name(mode), names[call], hipGetErrorName(code), status_of(stream));
      end_of_capture(stream);
      stream = next_for_capture(stream);
      CHECK(hipStreamSynchronize(other));
    }
    printf("%016llx\n", sum.check("the other stream's work"));
    sum.release();
  }
  return passed();
}
