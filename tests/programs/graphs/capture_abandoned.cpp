// run: plain
/* Captures that nobody ends: the stream is destroyed, or the thread that began it goes; other work is not touched. */
#include <thread>

#include "capture.h"

int main() {
  hipStream_t other = new_stream();
  Sum sum(8);
  for (auto mode : MODES) {
    hipStream_t stream = new_stream();
    CHECK(hipStreamBeginCapture(stream, mode));
    launch_busy(stream, 1000);
    printf("%s, destroyed: %s\n", mode_name(mode), hipGetErrorName(hipStreamDestroy(stream)));
    sum.launch(other, 3);
    printf("  %s", hipGetErrorName(hipStreamSynchronize(other)));
    printf(" %s\n", hipGetErrorName(hipStreamQuery(other)));
  }
  std::thread([] {
    hipStream_t stream = new_stream();
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
    launch_busy(stream, 1000);
  }).join();
  sum.launch(other, 3);
  printf("thread gone: %s\n", hipGetErrorName(hipStreamSynchronize(other)));
  /* On the default stream a copy is refused from 6 on: there is still something that captures. */
  Words got(sum.want.size());
  size_t size = got.size() * sizeof(gw_u64);
  SHOW(hipMemcpy(got.data(), sum.device, size, hipMemcpyDeviceToHost));
  CHECK(hipMemcpyAsync(got.data(), sum.device, size, hipMemcpyDeviceToHost, other));
  CHECK(hipStreamSynchronize(other));
  SAME(got.data(), sum.want.data(), size, "the other stream's work");
  printf("%016llx\n", digest_of(sum.want));
  return passed();
}
