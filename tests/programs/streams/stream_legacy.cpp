// run: from-hip 6
/* The default stream by its explicit name, handle 1: launches, copies, fills, events, callbacks and synchronization there are
 * those of the null stream, and blocking streams and it wait for each other. */
#include "work.h"

static void say(hipStream_t, hipError_t status, void *text) {
  printf("%s: %s\n", (const char *)text, hipGetErrorName(status));
}

int main() {
  hipStream_t blocking = new_stream(hipStreamDefault), apart = new_stream();
  hipEvent_t done = new_event();
  Sum sum(1), alone(2);
  gw_u64 *pinned = nullptr;
  size_t n = sum.want.size(), bytes = n * sizeof(gw_u64);
  CHECK(hipHostMalloc((void **)&pinned, bytes, hipHostMallocDefault));
  CHECK(hipDeviceSynchronize());

  /* One order over its two names and a blocking stream, without an event. */
  for (int round = 0; round < 30; round++) {
    alone.launch(apart, 1);
    sum.launch(round % 4 == 3 ? nullptr : hipStreamLegacy, 2);
    if (round % 7 == 0) launch_busy(blocking, MS);
    sum.launch(blocking, 2);
  }
  CHECK(hipMemcpyAsync(pinned, sum.device, bytes, hipMemcpyDeviceToHost, hipStreamLegacy));
  CHECK(hipStreamSynchronize(hipStreamLegacy));
  SAME(pinned, sum.want.data(), bytes, "one order");
  printf("one order %016llx\n", digest_of(sum.want));

  /* It waits for events, and records them for the host. (A stream that waits for one that was recorded there crashes, in
   * 6.4.3 and 7.2.4: they take the 1 for an address.) */
  for (int round = 0; round < 10; round++) {
    sum.launch(apart, 1);
    CHECK(hipEventRecord(done, apart));
    CHECK(hipStreamWaitEvent(hipStreamLegacy, done, 0));
    sum.launch(hipStreamLegacy, 3);
    CHECK(hipEventRecord(done, round % 2 ? hipStreamLegacy : nullptr));
    if (round % 2) CHECK(hipEventSynchronize(done));
    else CHECK(hipStreamWaitEvent(apart, done, 0));
  }
  CHECK(hipMemsetAsync(pinned, 0, bytes, hipStreamLegacy));
  CHECK(hipMemcpyAsync(pinned, sum.device, bytes, hipMemcpyDeviceToHost, hipStreamLegacy));
  CHECK(hipStreamAddCallback(hipStreamLegacy, say, (void *)"called back", 0));
  CHECK(hipEventRecord(done, hipStreamLegacy));
  CHECK(hipEventSynchronize(done));
  CHECK(hipStreamSynchronize(nullptr));
  SAME(pinned, sum.want.data(), bytes, "with events");
  printf("with events %016llx\n", digest_of(sum.want));

  /* A query of it sees the work of the null stream. */
  {
    Gate gate;
    gate.close(nullptr);
    sum.launch(nullptr, 1);
    printf("query while it waits: %s\n", hipGetErrorName(hipStreamQuery(hipStreamLegacy)));
    gate.open();
    CHECK(hipStreamSynchronize(hipStreamLegacy));
    printf("query afterwards: %s\n", hipGetErrorName(hipStreamQuery(hipStreamLegacy)));
  }
  show("destroy", hipStreamDestroy(hipStreamLegacy));
  show("capture", hipStreamBeginCapture(hipStreamLegacy, hipStreamCaptureModeRelaxed));
  CHECK(hipDeviceSynchronize());
  printf("%016llx %016llx\n", sum.check("all of it"), alone.check("a stream apart"));
  return passed();
}
