// run: from-hip 7 | slow-path | every-mode
/* Launches with an event that is destroyed, as the start or as the stop, behind work on the stream: the call says so, nothing is
 * launched, and the stream goes on. Older runtimes do not look. */
#include "work.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(7);
  CHECK(hipDeviceSynchronize());
  hipEvent_t event = new_event(), gone = new_event();
  CHECK(hipEventDestroy(gone));
  gw_u32 count = 1000;
  gw_u64 value = 1;
  void *arguments[] = {&sum.device, &sum.device, &count, &value};
  for (int round = 0; round < 4; round++) {
    launch_busy(stream, MS);
    sum.launch(stream, 3);
    for (hipEvent_t start : {hipEvent_t(nullptr), event, gone}) {
      show("launch", hipExtLaunchKernel((const void *)mix, dim3(4), dim3(256), arguments, 0, stream, start, gone, 0));
    }
    show("launch", hipExtLaunchKernel((const void *)mix, dim3(4), dim3(256), arguments, 0, stream, gone, event, 0));
    sum.launch(stream, 1);
    show("the stream", hipStreamSynchronize(stream));
  }
  printf("%016llx\n", sum.check("the work"));
  return passed();
}
