// run: plain
/* 1,000 streams at a time, of both kinds, each with work and an event; then all go with more of it pending. */
#include "work.h"

int main() {
  const size_t count = 1000, n = 64;
  std::vector<hipStream_t> streams;
  std::vector<hipEvent_t> events;
  Words want = pattern_words(count * n, 1);
  gw_u64 *device = device_words(want);
  CHECK(hipDeviceSynchronize());
  for (size_t i = 0; i < count; i++) {
    streams.push_back(new_stream(i % 2 ? hipStreamNonBlocking : hipStreamDefault));
    events.push_back(new_event());
  }
  auto step = [&](size_t i, gw_u64 value) {
    launch_mix(streams[i], device + i * n, device + i * n, n, value);
    for (size_t k = 0; k < n; k++) want[i * n + k] = gw_mix_step(want[i * n + k], want[i * n + k], (gw_u32)k, value);
  };
  for (size_t i = 0; i < count; i++) step(i, 1);
  for (size_t i = 0; i < count; i++) CHECK(hipEventRecord(events[i], streams[i]));
  for (size_t i = 0; i < count; i++) {
    size_t next = (i + 1) % count;
    CHECK(hipStreamWaitEvent(streams[next], events[i], 0));
    step(next, 2);
  }
  for (size_t i = 0; i < count; i++) CHECK(hipStreamSynchronize(streams[i]));
  SAME_WORDS(device, want, "a thousand streams");
  for (size_t i = 0; i < count; i++) step(i, 3);
  for (size_t i = 0; i < count; i++) {
    CHECK(hipStreamDestroy(streams[i]));
    CHECK(hipEventDestroy(events[i]));
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(device, want, "streams that went with work pending");
  printf("%016llx\n", digest_of(want));
  CHECK(hipFree(device));
  return passed();
}
