// run: --gpus 2 --vram 16
/* The null stream's rule is each device's own: that of device 0 orders the streams of device 0 and leaves those of device
 * 1 alone; a stream belongs to the device where it was created, whichever is current. */
#include "check.h"

int main() {
  const size_t n = 1000;
  hipStream_t streams[2];
  gw_u64 *data[2];
  Words want[2];
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipStreamCreate(&streams[i]));
    want[i] = pattern_words(n, (gw_u64)i);
    data[i] = device_words(want[i]);
  }
  CHECK(hipSetDevice(0));
  Gate gate;
  gate.close(nullptr);
  launch_mix(nullptr, data[0], data[0], n, 1);
  launch_mix(streams[0], data[0], data[0], n, 2);
  CHECK(hipSetDevice(1));
  launch_mix(streams[1], data[1], data[1], n, 3);
  launch_mix(nullptr, data[1], data[1], n, 4);
  CHECK(hipDeviceSynchronize());
  cpu_mix(want[1], want[1], 3);
  cpu_mix(want[1], want[1], 4);
  SAME_WORDS(data[1], want[1], "device 1 beside a held null stream of device 0");
  EXPECT(hipStreamQuery(streams[0]), hipErrorNotReady);
  printf("device 1 goes on: %016llx\n", digest_of(want[1]));
  CHECK(hipSetDevice(0));
  gate.open();
  CHECK(hipStreamSynchronize(streams[0]));
  cpu_mix(want[0], want[0], 1);
  cpu_mix(want[0], want[0], 2);
  SAME_WORDS(data[0], want[0], "device 0");
  for (gw_u64 i = 0; i < 60; i++) {
    CHECK(hipSetDevice((int)(i % 2)));
    launch_mix(i % 3 ? nullptr : streams[i % 2], data[i % 2], data[i % 2], n, i);
    cpu_mix(want[i % 2], want[i % 2], i);
  }
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipDeviceSynchronize());
    SAME_WORDS(data[i], want[i], "both by turns");
    printf("device %d %016llx\n", i, digest_of(want[i]));
  }
  /* An event of one device in a stream of the other. */
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  show("an event of device 1 recorded in a stream of device 0", hipEventRecord(event, streams[0]));
  show("in its own", hipEventRecord(event, streams[1]));
  show("waited for by the other", hipStreamWaitEvent(streams[0], event, 0));
  CHECK(hipStreamSynchronize(streams[0]));
  CHECK(hipSetDevice(0));
  hipEvent_t of_0;
  float ms = 0;
  CHECK(hipEventCreate(&of_0));
  CHECK(hipEventRecord(of_0, streams[0]));
  CHECK(hipStreamSynchronize(streams[0]));
  CHECK(hipEventSynchronize(event));
  show("the time between events of two devices", hipEventElapsedTime(&ms, of_0, event));
  return passed();
}
