// run: every-mode
/* A long kernel seen from the host: queries say "not ready" while it runs, every way of waiting returns only
 * afterwards, polling and blocking alike. */
#include "check.h"

static const gw_u64 LONG = 400 * MS;

/* Starts the kernel, checks the queries, waits by `wait` and checks that the time has passed. A release decides whether a
 * free waits, so the library takes it for no proof, and may say "not ready" a moment longer (docs/adr/0006): not `at_once`. */
template <typename Wait>
static void one(const char *name, hipStream_t stream, hipEvent_t event, Wait wait, bool at_once = true) {
  gw_u64 start = now_ns();
  launch_busy(stream, LONG);
  CHECK(hipEventRecord(event, stream));
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  wait();
  REQUIRE(now_ns() - start >= LONG, "%s returned %llu ns after the launch", name, now_ns() - start);
  until([&] { return at_once || hipStreamQuery(stream) != hipErrorNotReady; });
  CHECK(hipStreamQuery(stream));
  CHECK(hipEventQuery(event));
  printf("%s: not ready, then ready\n", name);
}

int main(int argc, char **argv) {
  if (has_flag(argc, argv, "--blocking")) CHECK(hipSetDeviceFlags(hipDeviceScheduleBlockingSync));
  hipStream_t stream, other;
  hipEvent_t plain, blocking, untimed;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  CHECK(hipEventCreate(&plain));
  CHECK(hipEventCreateWithFlags(&blocking, hipEventBlockingSync));
  CHECK(hipEventCreateWithFlags(&untimed, hipEventBlockingSync | hipEventDisableTiming));
  one("hipStreamSynchronize", stream, plain, [&] { CHECK(hipStreamSynchronize(stream)); });
  one("hipEventSynchronize", stream, plain, [&] { CHECK(hipEventSynchronize(plain)); });
  one("blocking event", stream, blocking, [&] { CHECK(hipEventSynchronize(blocking)); });
  one("blocking event without timing", other, untimed, [&] { CHECK(hipEventSynchronize(untimed)); });
  one("hipDeviceSynchronize", other, plain, [&] { CHECK(hipDeviceSynchronize()); });
  one("null stream", nullptr, plain, [&] { CHECK(hipStreamSynchronize(nullptr)); });
  one("polling hipStreamQuery", stream, plain, [&] {
    hipError_t state;
    until([&] { return (state = hipStreamQuery(stream)) != hipErrorNotReady; });
    CHECK(state);
    CHECK(hipEventSynchronize(plain));
  });
  one("polling hipEventQuery", stream, blocking, [&] {
    hipError_t state;
    until([&] { return (state = hipEventQuery(blocking)) != hipErrorNotReady; });
    CHECK(state);
  });
  one("blocking copy", stream, plain, [&] {
    Words words = pattern_words(100, 1);
    gw_u64 *a = device_words(words); /* the null stream's copy waits for the blocking stream */
    CHECK(hipFree(a));
  });
  one("hipFree", other, plain, [&] {
    void *p = nullptr;
    CHECK(hipMalloc(&p, 4096));
    CHECK(hipFree(p));
  }, false);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(other));
  return passed();
}
