// run: every-mode
/* Streams: the null stream's order against blocking streams, non-blocking ones, the per-thread stream,
 * sixty-four at once, and dependencies by events; proven by the contents that `mix` leaves behind. */
#include "check.h"

static const size_t N = 2048;

/* Null stream and blocking streams take turns on one buffer without any event. */
static void null_stream_order() {
  hipStream_t s[2];
  for (auto &stream : s) CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(N, 1);
  gw_u64 *a = device_words(want);
  launch_busy(nullptr, 20 * MS);
  for (int i = 0; i < 30; i++) {
    launch_mix(nullptr, a, a, N, (gw_u64)i * 2);
    cpu_mix(want, want, (gw_u64)i * 2);
    if (i % 7 == 0) launch_busy(s[i % 2], 2 * MS);
    launch_mix(s[i % 2], a, a, N, (gw_u64)i * 2 + 1);
    cpu_mix(want, want, (gw_u64)i * 2 + 1);
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(a, want, "null stream against blocking streams");
  printf("null stream order %016llx\n", digest_of(want));
  /* A blocking copy on the null stream waits for the blocking streams as well. */
  launch_busy(s[0], 30 * MS);
  launch_mix(s[0], a, a, N, 99);
  cpu_mix(want, want, 99);
  SAME_WORDS(a, want, "hipMemcpy behind a blocking stream");
  for (auto &stream : s) CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(a));
}

/* A non-blocking stream does not wait for the null stream. */
static void non_blocking() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  unsigned flags = 0;
  CHECK(hipStreamGetFlags(stream, &flags));
  REQUIRE(flags == hipStreamNonBlocking, "flags are %u", flags);
  Words want = pattern_words(N, 2);
  gw_u64 *a = device_words(want);
  hipEvent_t end;
  CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
  CHECK(hipDeviceSynchronize());
  launch_busy(nullptr, 700 * MS);
  CHECK(hipEventRecord(end, nullptr));
  launch_mix(stream, a, a, N, 4);
  CHECK(hipStreamSynchronize(stream));
  EXPECT(hipEventQuery(end), hipErrorNotReady);
  CHECK(hipEventSynchronize(end));
  cpu_mix(want, want, 4);
  SAME_WORDS(a, want, "non-blocking stream");
  printf("non-blocking stream passed the null stream\n");
  CHECK(hipEventDestroy(end));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(a));
}

static void per_thread_stream() {
  Words want = pattern_words(N, 3);
  gw_u64 *a = device_words(want);
  launch_busy(hipStreamPerThread, 10 * MS);
  for (int i = 0; i < 20; i++) {
    launch_mix(hipStreamPerThread, a, a, N, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
  }
  CHECK(hipStreamSynchronize(hipStreamPerThread));
  SAME_WORDS(a, want, "hipStreamPerThread");
  printf("per-thread stream %016llx\n", digest_of(want));
  CHECK(hipFree(a));
}

static void many_streams() {
  const int count = 64, rounds = 20;
  std::vector<hipStream_t> streams(count);
  std::vector<gw_u64 *> buffers(count);
  std::vector<Words> want(count);
  for (int s = 0; s < count; s++) {
    if (s % 4 == 3) {
      CHECK(hipStreamCreateWithPriority(&streams[s], hipStreamNonBlocking, s % 8 == 3 ? -1 : 1));
    } else {
      CHECK(hipStreamCreateWithFlags(&streams[s], s % 2 ? hipStreamNonBlocking : hipStreamDefault));
    }
    want[s] = pattern_words(500, (gw_u64)s);
    buffers[s] = device_words(want[s]);
  }
  for (int r = 0; r < rounds; r++) {
    for (int s = 0; s < count; s++) {
      launch_mix(streams[s], buffers[s], buffers[s], 500, (gw_u64)(r * count + s));
      cpu_mix(want[s], want[s], (gw_u64)(r * count + s));
    }
  }
  for (auto stream : streams) CHECK(hipStreamSynchronize(stream));
  Digest digest;
  for (int s = 0; s < count; s++) {
    CHECK(hipStreamQuery(streams[s]));
    SAME_WORDS(buffers[s], want[s], "stream " + std::to_string(s) + " of many");
    digest.add(want[s]);
    CHECK(hipFree(buffers[s]));
    CHECK(hipStreamDestroy(streams[s]));
  }
  printf("64 streams %016llx\n", digest.value);
}

/* Work wanders from stream to stream; each hop is one event. */
static void relay() {
  const int count = 8, hops = 64;
  hipStream_t streams[count];
  hipEvent_t events[count];
  for (int s = 0; s < count; s++) {
    CHECK(hipStreamCreateWithFlags(&streams[s], hipStreamNonBlocking));
    CHECK(hipEventCreateWithFlags(&events[s], hipEventDisableTiming));
  }
  Words want = pattern_words(N, 4);
  gw_u64 *a = device_words(want);
  for (int h = 0; h < hops; h++) {
    int s = (h * 3) % count, before = ((h - 1) * 3 % count + count) % count;
    if (h > 0) CHECK(hipStreamWaitEvent(streams[s], events[before], 0));
    if (h % 9 == 0) launch_busy(streams[s], 1 * MS);
    launch_mix(streams[s], a, a, N, (gw_u64)h);
    cpu_mix(want, want, (gw_u64)h);
    CHECK(hipEventRecord(events[s], streams[s]));
  }
  CHECK(hipEventSynchronize(events[(hops - 1) * 3 % count]));
  SAME_WORDS(a, want, "relay over streams by events");
  printf("relay %016llx\n", digest_of(want));
  for (int s = 0; s < count; s++) {
    CHECK(hipStreamDestroy(streams[s]));
    CHECK(hipEventDestroy(events[s]));
  }
  CHECK(hipFree(a));
}

/* A stream destroyed with work in it still does that work. */
static void destroy_with_work() {
  Words want = pattern_words(N, 5);
  gw_u64 *a = device_words(want);
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  launch_busy(stream, 20 * MS);
  launch_mix(stream, a, a, N, 1);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipDeviceSynchronize());
  cpu_mix(want, want, 1);
  SAME_WORDS(a, want, "destroyed stream");
  printf("destroyed with work %016llx\n", digest_of(want));
  CHECK(hipFree(a));
}

int main() {
  null_stream_order();
  non_blocking();
  per_thread_stream();
  many_streams();
  relay();
  destroy_with_work();
  int least = 0, greatest = 0;
  CHECK(hipDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(least >= greatest, "priorities from %d to %d", least, greatest);
  EXPECT(hipStreamDestroy(nullptr), hipErrorInvalidHandle);
  return passed();
}
