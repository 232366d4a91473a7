// run: every-mode
/* Events: never recorded, without timing, not ready, elapsed time, waits, and which record a wait saw.
 * With --timing the elapsed time of a 20 ms kernel must also lie below 30 ms. */
#include "check.h"

static const size_t N = 1024;

static hipEvent_t event_with(unsigned flags) {
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, flags));
  return event;
}

static void never_recorded() {
  hipEvent_t a = event_with(hipEventDefault), b = event_with(hipEventDefault);
  hipStream_t stream;
  float ms = -1;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipEventQuery(a));
  CHECK(hipEventSynchronize(a));
  CHECK(hipStreamWaitEvent(stream, a, 0));
  EXPECT(hipEventElapsedTime(&ms, a, b), hipErrorInvalidHandle);
  EXPECT(hipEventElapsedTime(&ms, a, a), hipErrorInvalidHandle);
  CHECK(hipEventRecord(a, stream));
  CHECK(hipEventSynchronize(a));
  EXPECT(hipEventElapsedTime(&ms, a, b), hipErrorInvalidHandle);
  CHECK(hipEventElapsedTime(&ms, a, a));
  REQUIRE(ms == 0.f, "an event is %g ms after itself", (double)ms);
  CHECK(hipEventDestroy(a));
  CHECK(hipEventDestroy(b));
  CHECK(hipStreamDestroy(stream));
  printf("never recorded: as HIP defines it\n");
}

static void wrong_use(hipStream_t stream) {
  hipEvent_t timed = event_with(hipEventDefault), untimed = event_with(hipEventDisableTiming), none = nullptr;
  float ms = -1;
  CHECK(hipEventRecord(timed, stream));
  CHECK(hipEventRecord(untimed, stream));
  CHECK(hipStreamSynchronize(stream));
  EXPECT(hipEventElapsedTime(&ms, timed, untimed), hipErrorInvalidHandle);
  EXPECT(hipEventElapsedTime(&ms, untimed, untimed), hipErrorInvalidHandle);
  EXPECT(hipEventElapsedTime(nullptr, timed, timed), hipErrorInvalidValue);
  EXPECT(hipEventElapsedTime(&ms, timed, nullptr), hipErrorInvalidHandle);
  EXPECT(hipEventCreateWithFlags(&none, 0x400), hipErrorInvalidValue);
  EXPECT(hipEventRecord(nullptr, stream), hipErrorInvalidHandle);
  EXPECT(hipEventQuery(nullptr), hipErrorInvalidHandle);
  EXPECT(hipEventSynchronize(nullptr), hipErrorInvalidHandle);
  EXPECT(hipEventDestroy(nullptr), hipErrorInvalidHandle);
  EXPECT(hipStreamWaitEvent(stream, nullptr, 0), hipErrorInvalidHandle);
  EXPECT(hipStreamWaitEvent(stream, timed, 2), hipErrorInvalidValue);
  CHECK(hipEventDestroy(timed));
  CHECK(hipEventDestroy(untimed));
  printf("wrong use: the errors of HIP\n");
}

static void not_ready(hipStream_t stream) {
  hipEvent_t start = event_with(hipEventDefault), stop = event_with(hipEventBlockingSync);
  float ms = -1;
  CHECK(hipEventRecord(start, stream));
  launch_busy(stream, 500 * MS);
  CHECK(hipEventRecord(stop, stream));
  EXPECT(hipEventQuery(stop), hipErrorNotReady);
  EXPECT(hipEventElapsedTime(&ms, start, stop), hipErrorNotReady);
  CHECK(hipEventSynchronize(stop));
  CHECK(hipEventQuery(stop));
  CHECK(hipEventElapsedTime(&ms, start, stop));
  REQUIRE(ms >= 499.9f, "500 ms took %g ms", (double)ms);
  CHECK(hipEventDestroy(start));
  CHECK(hipEventDestroy(stop));
  printf("not ready, then ready\n");
}

static void elapsed(hipStream_t stream, bool timing) {
  hipEvent_t events[6];
  for (auto &event : events) event = event_with(hipEventDefault);
  launch_busy(stream, MS); /* the first launch brings the code object to the device */
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipEventRecord(events[0], stream));
  launch_busy(stream, 20 * MS);
  CHECK(hipEventRecord(events[1], stream));
  for (int i = 2; i < 6; i++) {
    launch_busy(stream, 5 * MS);
    CHECK(hipEventRecord(events[i], stream));
  }
  CHECK(hipEventSynchronize(events[5]));
  float first = 0, sum = 0;
  CHECK(hipEventElapsedTime(&first, events[0], events[1]));
  REQUIRE(first >= 19.9f, "a 20 ms kernel took %g ms", (double)first);
  REQUIRE(!timing || (first >= 19.5f && first <= 30.f), "a 20 ms kernel took %g ms", (double)first);
  for (int i = 2; i < 6; i++) {
    float part = 0;
    CHECK(hipEventElapsedTime(&part, events[i - 1], events[i]));
    REQUIRE(part >= 4.95f, "a 5 ms kernel took %g ms", (double)part);
    REQUIRE(!timing || part <= 12.f, "a 5 ms kernel took %g ms", (double)part);
  }
  CHECK(hipEventElapsedTime(&sum, events[0], events[5]));
  REQUIRE(sum >= 39.9f, "40 ms of kernels took %g ms", (double)sum);
  CHECK(hipEventElapsedTime(&sum, events[5], events[0]));
  REQUIRE(sum <= -39.9f, "backwards it is %g ms", (double)sum);
  for (auto event : events) CHECK(hipEventDestroy(event));
  printf("elapsed times are at least the durations\n");
}

/* A wait counts for the record made before it, not for a later one of the same event. */
static void waits_for_the_earlier_record() {
  hipStream_t s1, s2;
  CHECK(hipStreamCreateWithFlags(&s1, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&s2, hipStreamNonBlocking));
  hipEvent_t event = event_with(hipEventDisableTiming);
  Words want = pattern_words(N, 1);
  gw_u64 *a = device_words(want);
  launch_busy(s1, 30 * MS);
  launch_mix(s1, a, a, N, 1);
  CHECK(hipEventRecord(event, s1));
  CHECK(hipStreamWaitEvent(s2, event, 0));
  launch_busy(s1, 700 * MS);
  CHECK(hipEventRecord(event, s1));
  launch_mix(s2, a, a, N, 2);
  CHECK(hipStreamSynchronize(s2));
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  CHECK(hipEventSynchronize(event));
  cpu_mix(want, want, 1);
  cpu_mix(want, want, 2);
  SAME_WORDS(a, want, "wait for the earlier record");
  printf("a wait saw the earlier record %016llx\n", digest_of(want));
  CHECK(hipEventDestroy(event));
  CHECK(hipStreamDestroy(s1));
  CHECK(hipStreamDestroy(s2));
  CHECK(hipFree(a));
}

/* An event destroyed right after a wait still orders that wait. */
static void destroyed_after_wait() {
  hipStream_t s1, s2;
  CHECK(hipStreamCreateWithFlags(&s1, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&s2, hipStreamNonBlocking));
  Words want = pattern_words(N, 2);
  gw_u64 *a = device_words(want);
  for (int i = 0; i < 10; i++) {
    hipEvent_t event = event_with(i % 2 ? hipEventDefault : hipEventDisableTiming);
    hipStream_t from = i % 2 ? s2 : s1, to = i % 2 ? s1 : s2;
    launch_busy(from, 3 * MS);
    launch_mix(from, a, a, N, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipEventRecord(event, from));
    CHECK(hipStreamWaitEvent(to, event, 0));
    CHECK(hipEventDestroy(event));
  }
  CHECK(hipStreamSynchronize(s1));
  CHECK(hipStreamSynchronize(s2));
  SAME_WORDS(a, want, "events destroyed after the wait");
  printf("destroyed after the wait %016llx\n", digest_of(want));
  CHECK(hipStreamDestroy(s1));
  CHECK(hipStreamDestroy(s2));
  CHECK(hipFree(a));
}

/* Many events in flight on one stream complete in order. */
static void many_events(hipStream_t stream) {
  const int count = 500;
  std::vector<hipEvent_t> events(count);
  Words want = pattern_words(64, 3);
  gw_u64 *a = device_words(want);
  for (int i = 0; i < count; i++) {
    events[i] = event_with(i % 2 ? hipEventDefault : hipEventDisableTiming);
    launch_mix(stream, a, a, 64, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipEventRecord(events[i], stream));
  }
  CHECK(hipEventSynchronize(events[count - 1]));
  for (auto event : events) {
    CHECK(hipEventQuery(event));
    CHECK(hipEventDestroy(event));
  }
  SAME_WORDS(a, want, "many events");
  printf("%d events %016llx\n", count, digest_of(want));
  CHECK(hipFree(a));
}

int main(int argc, char **argv) {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  never_recorded();
  wrong_use(stream);
  not_ready(stream);
  elapsed(stream, has_flag(argc, argv, "--timing"));
  elapsed(nullptr, has_flag(argc, argv, "--timing"));
  waits_for_the_earlier_record();
  destroyed_after_wait();
  many_events(stream);
  CHECK(hipStreamDestroy(stream));
  return passed();
}
