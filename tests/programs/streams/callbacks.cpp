// run: every-mode
/* Stream callbacks behind long kernels: a callback runs after all commands before it and before all after it.
 * Kernels and callbacks both work on one pinned buffer, so a wrong order leaves wrong contents. */
#include "check.h"

#include <atomic>

static const size_t N = 600;

struct Step {
  gw_u64 *data;
  gw_u64 value;
  int number;
  std::atomic<int> *done;
};

static void on_host(hipStream_t, hipError_t status, void *argument) {
  Step *step = (Step *)argument;
  if (status != hipSuccess) FAIL("callback %d got %s", step->number, hipGetErrorName(status));
  if (step->done->load() != step->number)
    FAIL("callback %d ran as number %d", step->number, step->done->load());
  for (size_t i = 0; i < N; i++)
    step->data[i] = gw_mix_step(step->data[i], step->data[i], (gw_u32)i, step->value);
  step->done->store(step->number + 1);
}

static gw_u64 sequence(hipStream_t stream, gw_u64 busy_ns, int count) {
  void *memory = nullptr;
  CHECK(hipHostMalloc(&memory, N * sizeof(gw_u64), hipHostMallocDefault));
  gw_u64 *data = (gw_u64 *)memory;
  Words want = pattern_words(N, 1);
  memcpy(data, want.data(), N * sizeof(gw_u64));
  std::atomic<int> done(0);
  std::vector<Step> steps((size_t)count);
  for (int i = 0; i < count; i++) {
    steps[(size_t)i] = {data, 1000 + (gw_u64)i, i, &done};
    if (i == 0 || i % 8 == 7) launch_busy(stream, busy_ns);
    launch_mix(stream, data, data, N, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipStreamAddCallback(stream, on_host, &steps[(size_t)i], 0));
    cpu_mix(want, want, 1000 + (gw_u64)i);
    launch_mix(stream, data, data, N, 2000 + (gw_u64)i);
    cpu_mix(want, want, 2000 + (gw_u64)i);
  }
  CHECK(hipStreamSynchronize(stream));
  REQUIRE(done.load() == count, "%d of %d callbacks ran before the synchronize returned", done.load(), count);
  SAME(data, want.data(), N * sizeof(gw_u64), "kernels and callbacks in turn");
  CHECK(hipHostFree(memory));
  return digest_of(want);
}

/* A callback as the last command: a synchronize waits for it as well. */
static void last_command(hipStream_t stream) {
  void *memory = nullptr;
  CHECK(hipHostMalloc(&memory, N * sizeof(gw_u64), hipHostMallocDefault));
  memset(memory, 0, N * sizeof(gw_u64));
  std::atomic<int> done(0);
  Step step = {(gw_u64 *)memory, 5, 0, &done};
  launch_busy(stream, 50 * MS);
  CHECK(hipStreamAddCallback(stream, on_host, &step, 0));
  CHECK(hipDeviceSynchronize());
  REQUIRE(done.load() == 1, "the device was synchronized before the callback ran");
  CHECK(hipHostFree(memory));
  printf("synchronize waits for a callback\n");
}

int main() {
  hipStream_t streams[2];
  CHECK(hipStreamCreate(&streams[0]));
  CHECK(hipStreamCreateWithFlags(&streams[1], hipStreamNonBlocking));
  printf("behind 50 ms %016llx\n", sequence(streams[0], 50 * MS, 4));
  printf("behind 8 ms %016llx\n", sequence(streams[1], 8 * MS, 24));
  printf("null stream %016llx\n", sequence(nullptr, 5 * MS, 8));
  printf("idle stream %016llx\n", sequence(streams[0], 0, 1));
  last_command(streams[0]);
  EXPECT(hipStreamAddCallback(streams[0], nullptr, nullptr, 0), hipErrorInvalidValue);
  EXPECT(hipStreamAddCallback(streams[0], on_host, nullptr, 1), hipErrorInvalidValue);
  for (auto stream : streams) CHECK(hipStreamDestroy(stream));
  return passed();
}
