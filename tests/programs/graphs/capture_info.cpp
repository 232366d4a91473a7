// run: plain
/* What can be asked about a capture: before, during and after, of the stream that began it and of a branch. */
#include "capture.h"

static void show(const char *when, hipStream_t stream) {
  hipStreamCaptureStatus status = (hipStreamCaptureStatus)-1;
  unsigned long long id = 0;
  hipError_t code = hipStreamGetCaptureInfo(stream, &status, &id);
  printf("%s: %s %s %d", when, status_of(stream), hipGetErrorName(code), (int)status);
  hipStreamCaptureStatus status2 = (hipStreamCaptureStatus)-1;
  unsigned long long id2 = 0;
  hipGraph_t graph = nullptr;
  const hipGraphNode_t *dependencies = nullptr;
  size_t count = 0;
  code = hipStreamGetCaptureInfo_v2(stream, &status2, &id2, &graph, &dependencies, &count);
  bool active = code == hipSuccess && status2 == hipStreamCaptureStatusActive;
  printf(", v2 %s %d, same id %d, graph %d, dependencies %zu\n", hipGetErrorName(code), (int)status2, id == id2,
         active && graph != nullptr, active ? count : 0);
}

int main() {
  hipStream_t stream = new_stream(), side = new_stream();
  hipEvent_t fork = new_event(), join = new_event();
  show("before", stream);
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  show("begun", stream);
  show("elsewhere", side);
  launch_busy(stream, 1000);
  show("with a kernel", stream);
  CHECK(hipEventRecord(fork, stream));
  CHECK(hipStreamWaitEvent(side, fork, 0));
  show("branch", side);
  launch_busy(side, 1000);
  launch_busy(stream, 1000);
  CHECK(hipEventRecord(join, side));
  CHECK(hipStreamWaitEvent(stream, join, 0));
  show("joined", stream);

  /* The next node is to follow the first one only. */
  hipStreamCaptureStatus status;
  unsigned long long id;
  hipGraph_t graph;
  const hipGraphNode_t *dependencies;
  size_t count;
  CHECK(hipStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &dependencies, &count));
  hipGraphNode_t first = count > 0 ? dependencies[0] : nullptr;
  SHOW(hipStreamUpdateCaptureDependencies(stream, &first, 1, hipStreamSetCaptureDependencies));
  show("dependencies set", stream);
  launch_busy(stream, 1000);
  end_of_capture(stream);
  show("after", stream);
  SHOW(hipStreamUpdateCaptureDependencies(side, &first, 1, 0));
  printf("%016llx\n", whole_work(stream, 1));
  return passed();
}
