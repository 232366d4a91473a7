// run: plain
/* The calling thread's capture mode: what an exchange returns, and that it is each thread's own. */
#include <thread>

#include "capture.h"

static void exchange(const char *when, hipStreamCaptureMode mode) {
  hipError_t code = hipThreadExchangeStreamCaptureMode(&mode);
  printf("%s: %s, before %s\n", when, hipGetErrorName(code), mode_name(mode));
}

int main() {
  exchange("first", hipStreamCaptureModeRelaxed);
  exchange("second", hipStreamCaptureModeThreadLocal);
  std::thread([] {
    exchange("another thread", hipStreamCaptureModeRelaxed);
    exchange("another thread again", hipStreamCaptureModeGlobal);
  }).join();
  exchange("third", hipStreamCaptureModeGlobal);
  SHOW(hipThreadExchangeStreamCaptureMode(nullptr));

  /* A thread that has exchanged it for relaxed may query while another captures in global mode. */
  hipStream_t stream = new_stream(), other = new_stream();
  for (auto mode : MODES) {
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    launch_busy(stream, 1000);
    std::thread([&] {
      exchange("asking thread", mode);
      printf("  query %s\n", hipGetErrorName(hipStreamQuery(other)));
      printf("  malloc ");
      void *p = nullptr;
      hipError_t code = hipMalloc(&p, 256);
      printf("%s\n", hipGetErrorName(code));
    }).join();
    printf("  capture %s\n", status_of(stream));
    end_of_capture(stream);
    stream = next_for_capture(stream);
  }
  exchange("at the end", hipStreamCaptureModeGlobal);
  printf("%016llx\n", whole_work(new_stream(), 1, 60));
  return passed();
}
