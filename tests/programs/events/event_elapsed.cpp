// run: plain
/* hipEventElapsedTime: its errors in every state of the two events, and times that are never negative. */
#include "check.h"

static const char *const STATES[] = {"never recorded", "complete", "without timing", "pending"};

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  hipEvent_t events[4];
  for (int i = 0; i < 4; i++) {
    CHECK(hipEventCreateWithFlags(&events[i], i == 2 ? hipEventDisableTiming : hipEventDefault));
  }
  Gate gate;
  CHECK(hipEventRecord(events[1], stream));
  CHECK(hipEventRecord(events[2], stream));
  CHECK(hipStreamSynchronize(stream));
  gate.close(stream);
  CHECK(hipEventRecord(events[3], stream));
  for (int open = 0; open < 2; open++) {
    for (int a = 0; a < 4; a++) {
      for (int b = 0; b < 4; b++) {
        float ms = -1;
        hipError_t error = hipEventElapsedTime(&ms, events[a], events[b]);
        hipError_t last = hipGetLastError();
        printf("%s to %s: %s, last error %s\n", STATES[a], STATES[b], hipGetErrorName(error),
               hipGetErrorName(last));
        if (error == hipSuccess && a <= b) REQUIRE(ms >= 0, "%g ms", (double)ms);
      }
    }
    float ms = -1;
    show("without a place for it", hipEventElapsedTime(nullptr, events[1], events[1]));
    show("from nothing", hipEventElapsedTime(&ms, nullptr, events[1]));
    show("to nothing", hipEventElapsedTime(&ms, events[1], nullptr));
    gate.open();
    CHECK(hipStreamSynchronize(stream));
    printf("all are complete now\n");
  }
  /* Times follow the order of the stream. */
  hipEvent_t marks[12];
  for (auto &mark : marks) CHECK(hipEventCreate(&mark));
  for (auto &mark : marks) {
    launch_busy(stream, MS);
    CHECK(hipEventRecord(mark, stream));
  }
  CHECK(hipEventSynchronize(marks[11]));
  for (int i = 1; i < 12; i++) {
    float ms = -1;
    CHECK(hipEventElapsedTime(&ms, marks[i - 1], marks[i]));
    REQUIRE(ms >= 0.99f, "a kernel of 1 ms lies in %g ms", (double)ms);
    CHECK(hipEventElapsedTime(&ms, marks[i], marks[i - 1]));
    REQUIRE(ms <= -0.99f, "backwards it is %g ms", (double)ms);
  }
  printf("times follow the stream's order\n");
  return passed();
}
