// run: --gpus 2 --vram 16
/* hipMemcpyPeerAsync and plain copies between two devices, in the order of one stream and of two with events. */
#include "check.h"

int main() {
  const size_t n = 6000, bytes = n * 8;
  hipStream_t streams[2];
  hipEvent_t events[2];
  gw_u64 *data[2];
  Words want[2];
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    int can = 7;
    CHECK(hipDeviceCanAccessPeer(&can, i, 1 - i));
    printf("device %d can access the other: %d\n", i, can);
    CHECK(hipStreamCreate(&streams[i]));
    CHECK(hipEventCreateWithFlags(&events[i], hipEventDisableTiming));
    want[i] = pattern_words(n, (gw_u64)i);
    data[i] = device_words(want[i]);
  }
  for (gw_u64 i = 0; i < 16; i++) {
    int from = (int)(i % 2), to = 1 - from;
    CHECK(hipSetDevice(from));
    if (i % 5 == 0) launch_busy(streams[from], MS);
    launch_mix(streams[from], data[from], data[from], n, i);
    cpu_mix(want[from], want[from], i);
    if (i % 4 < 2) {
      CHECK(hipMemcpyPeerAsync(data[to], to, data[from], from, bytes, streams[from]));
    } else {
      CHECK(hipMemcpyAsync(data[to], data[from], bytes, hipMemcpyDeviceToDevice, streams[from]));
    }
    want[to] = want[from];
    CHECK(hipEventRecord(events[from], streams[from]));
    CHECK(hipStreamWaitEvent(streams[to], events[from], 0));
    CHECK(hipSetDevice(to));
    launch_mix(streams[to], data[to], data[to], n, i + 100);
    cpu_mix(want[to], want[to], i + 100);
  }
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipDeviceSynchronize());
  }
  for (int i = 0; i < 2; i++) {
    SAME_WORDS(data[i], want[i], "device " + std::to_string(i));
    printf("device %d %016llx\n", i, digest_of(want[i]));
  }
  CHECK(hipSetDevice(0));
  show("to no device", hipMemcpyPeerAsync(data[1], 7, data[0], 0, bytes, streams[0]));
  show("of nothing", hipMemcpyPeerAsync(data[1], 1, data[0], 0, 0, streams[0]));
  show("access to itself", hipDeviceEnablePeerAccess(0, 0));
  show("access", hipDeviceEnablePeerAccess(1, 0));
  show("access again", hipDeviceEnablePeerAccess(1, 0));
  show("no access", hipDeviceDisablePeerAccess(1));
  CHECK(hipDeviceSynchronize());
  return passed();
}
