// run: --gpus 2 --vram 64 | every-mode
/* Two GPUs: memory, work and events on each, copies between them, and two processes that each see one of
 * them. Roles: multi_gpu (the parent), multi_gpu one GIB (a child that sees one device). */
#include "processes.h"

static const size_t N = 3000;

struct Device {
  int index;
  hipStream_t stream;
  gw_u64 *data;
  Words want;
};

static Device open_device(int index) {
  Device d;
  d.index = index;
  CHECK(hipSetDevice(index));
  int current = -1;
  CHECK(hipGetDevice(&current));
  REQUIRE(current == index, "device %d is current after hipSetDevice(%d)", current, index);
  CHECK(hipStreamCreate(&d.stream));
  d.want = pattern_words(N, (gw_u64)index);
  d.data = device_words(d.want);
  return d;
}

static void work_on_both(Device *devices) {
  for (int i = 0; i < 100; i++) {
    Device &d = devices[(i * 7 / 3) % 2];
    CHECK(hipSetDevice(d.index));
    if (i % 25 == 0) launch_busy(d.stream, 10 * MS);
    launch_mix(d.stream, d.data, d.data, N, (gw_u64)i);
    cpu_mix(d.want, d.want, (gw_u64)i);
  }
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipStreamSynchronize(devices[i].stream));
    SAME_WORDS(devices[i].data, devices[i].want, "device " + std::to_string(i));
    printf("device %d %016llx\n", i, digest_of(devices[i].want));
  }
}

/* Both at once: two kernels of 400 ms on two devices end together, not one after the other. */
static void really_two(Device *devices) {
  hipEvent_t ends[2];
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipEventCreateWithFlags(&ends[i], hipEventDisableTiming));
  }
  CHECK(hipSetDevice(0));
  launch_busy(devices[0].stream, 800 * MS);
  CHECK(hipEventRecord(ends[0], devices[0].stream));
  CHECK(hipSetDevice(1));
  launch_mix(devices[1].stream, devices[1].data, devices[1].data, N, 5);
  CHECK(hipStreamSynchronize(devices[1].stream));
  EXPECT(hipEventQuery(ends[0]), hipErrorNotReady);
  cpu_mix(devices[1].want, devices[1].want, 5);
  CHECK(hipSetDevice(0));
  CHECK(hipEventSynchronize(ends[0]));
  EXPECT(hipEventRecord(ends[1], devices[0].stream), hipErrorInvalidHandle);
  for (auto event : ends) CHECK(hipEventDestroy(event));
  printf("one device works while the other is busy\n");
}

static void peer_copies() {
  for (size_t bytes : {8ul, 4096ul, 16392ul, 65536ul, 1048584ul, 4194304ul, 10000008ul}) {
    Words source = pattern_words(bytes / 8, bytes), garbage(bytes / 8, 0xEEEEEEEEEEEEEEEEull);
    CHECK(hipSetDevice(0));
    gw_u64 *on_0 = device_words(source), *back_0 = device_words(garbage);
    CHECK(hipSetDevice(1));
    gw_u64 *on_1 = device_words(garbage);
    CHECK(hipMemcpyPeer(on_1, 1, on_0, 0, bytes));
    CHECK(hipDeviceSynchronize());
    SAME_WORDS(on_1, source, "peer copy of " + std::to_string(bytes));
    launch_mix(nullptr, on_1, on_1, source.size(), 3);
    cpu_mix(source, source, 3);
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpyPeer(back_0, 0, on_1, 1, bytes));
    CHECK(hipDeviceSynchronize());
    CHECK(hipSetDevice(0));
    SAME_WORDS(back_0, source, "peer copy back of " + std::to_string(bytes));
    CHECK(hipFree(on_0));
    CHECK(hipFree(back_0));
    CHECK(hipFree(on_1));
    printf("peer copy of %zu bytes %016llx\n", bytes, digest_of(source));
  }
}

/* Device 1 waits for an event of device 0; both work on one pinned buffer. */
static void wait_across(Device *devices) {
  void *memory = nullptr;
  CHECK(hipSetDevice(0));
  CHECK(hipHostMalloc(&memory, N * sizeof(gw_u64), hipHostMallocPortable));
  gw_u64 *shared = (gw_u64 *)memory;
  Words want = pattern_words(N, 77);
  memcpy(shared, want.data(), N * sizeof(gw_u64));
  for (int i = 0; i < 20; i++) {
    Device &d = devices[i % 2], &next = devices[(i + 1) % 2];
    hipEvent_t event;
    CHECK(hipSetDevice(d.index));
    CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    if (i % 4 < 2) launch_busy(d.stream, 5 * MS);
    launch_mix(d.stream, shared, shared, N, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipEventRecord(event, d.stream));
    CHECK(hipSetDevice(next.index));
    CHECK(hipStreamWaitEvent(next.stream, event, 0));
    CHECK(hipEventDestroy(event));
  }
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipStreamSynchronize(devices[i].stream));
  }
  SAME(shared, want.data(), N * sizeof(gw_u64), "two devices on one pinned buffer");
  printf("events across devices %016llx\n", digest_of(want));
  CHECK(hipHostFree(memory));
}

/* The child's part: it sees one device and takes most of its memory. */
static int one(size_t gib) {
  int count = 0;
  CHECK(hipGetDeviceCount(&count));
  REQUIRE(count == 1, "a process with one visible device sees %d", count);
  unsigned char *p = nullptr;
  hipError_t error = hipMalloc((void **)&p, gib * GIB);
  if (error == hipSuccess) {
    Words want = pattern_words(N, 5);
    CHECK(hipMemcpy(p, want.data(), N * sizeof(gw_u64), hipMemcpyHostToDevice));
    launch_mix(nullptr, (gw_u64 *)p, (gw_u64 *)p, N, 1);
    cpu_mix(want, want, 1);
    SAME_WORDS((gw_u64 *)p, want, "the child's device");
  }
  printf("%s\n", hipGetErrorName(error));
  wait_for_end_of_input();
  return 0;
}

/* 40 of 64 GiB fit twice on two devices, once on one. */
static void two_processes() {
  Child a = start_self({"one", "40"}, "HIP_VISIBLE_DEVICES=0");
  Child b = start_self({"one", "40"}, "HIP_VISIBLE_DEVICES=1");
  std::string first = a.line(), second = b.line();
  REQUIRE(first == "hipSuccess" && second == "hipSuccess", "on two devices: %s, %s", first.c_str(),
          second.c_str());
  Child c = start_self({"one", "40"}, "HIP_VISIBLE_DEVICES=1");
  std::string third = c.line();
  REQUIRE(third == "hipErrorOutOfMemory", "a third one on device 1: %s", third.c_str());
  for (Child *child : {&a, &b, &c}) {
    int status = child->end();
    REQUIRE(status == 0, "a child ended with %d", status);
  }
  printf("two processes on two devices: %s, %s; a third: %s\n", first.c_str(), second.c_str(), third.c_str());
}

int main(int argc, char **argv) {
  if (argc > 2) return one((size_t)atol(argv[2]));
  two_processes();
  int count = 0;
  CHECK(hipGetDeviceCount(&count));
  REQUIRE(count == 2, "%d devices", count);
  char bus[2][64];
  for (int i = 0; i < 2; i++) CHECK(hipDeviceGetPCIBusId(bus[i], sizeof bus[i], i));
  REQUIRE(strcmp(bus[0], bus[1]) != 0, "both devices are %s", bus[0]);
  Device devices[2] = {open_device(0), open_device(1)};
  work_on_both(devices);
  really_two(devices);
  peer_copies();
  wait_across(devices);
  EXPECT(hipSetDevice(2), hipErrorInvalidDevice);
  for (int i = 0; i < 2; i++) {
    CHECK(hipSetDevice(i));
    CHECK(hipStreamDestroy(devices[i].stream));
    CHECK(hipFree(devices[i].data));
  }
  return passed();
}
