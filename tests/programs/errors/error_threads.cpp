// run: plain
/* The last error is each thread's own; peeking keeps it, getting forgets it, and a success in between forgets it, too (up
 * to HIP 6). */
#include <thread>

#include "check.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  const size_t n = 100;
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  EXPECT(hipSetDevice(99), hipErrorInvalidDevice);
  std::thread([&] {
    printf("a fresh thread: %s\n", hipGetErrorName(hipPeekAtLastError()));
    EXPECT(hipMemset(nullptr, 0, 16), hipErrorInvalidValue);
    printf("its own error: %s\n", hipGetErrorName(hipPeekAtLastError()));
  }).join();
  show("the first thread's", hipPeekAtLastError());

  /* "Not ready" is one as well, natively and where the answer is not the runtime's own. */
  Gate gate;
  gate.close(stream);
  launch_mix(stream, data, data, n, 1);
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  CHECK(hipEventRecord(event, stream));
  show("a query of the stream", hipStreamQuery(stream));
  show("a query of the event", hipEventQuery(event));
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  std::thread([&] {
    printf("another thread: %s\n", hipGetErrorName(hipPeekAtLastError()));
    show("its query", hipEventQuery(event));
  }).join();
  printf("still: %s\n", hipGetErrorName(hipPeekAtLastError()));
  for (int i = 0; i < 3; i++) {
    EXPECT(hipEventQuery(event), hipErrorNotReady);
    switch (i) {
      case 0:
        launch_mix(stream, data, data, n, 2);
        break;
      case 1:
        CHECK(hipMemsetAsync(data, 1, 8, stream));
        break;
      default:
        CHECK(hipEventRecord(event, stream));
    }
    printf("after a good call: %s\n", hipGetErrorName(hipGetLastError()));
  }
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  EXPECT(hipEventRecord(nullptr, stream), hipErrorInvalidHandle);
  printf("after a bad record: %s\n", hipGetErrorName(hipGetLastError()));
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  EXPECT(hipStreamWaitEvent(stream, nullptr, 0), hipErrorInvalidHandle);
  printf("after a bad wait: %s\n", hipGetErrorName(hipGetLastError()));
  gate.open();
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(want, want, 1);
  cpu_mix(want, want, 2);
  memset(want.data(), 1, 8);
  SAME_WORDS(data, want, "the work");
  return passed();
}
