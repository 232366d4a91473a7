/* A thread waits for one stream inside the runtime, which lets whoever records an event there wait as well. That another stream
 * has nothing left is seen all the same: the first one goes on only when that was seen some times. */
#include "results.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "xsched/hip/hal.h"

static XQueueHandle queue_of(hipStream_t stream) {
  HwQueueHandle hwq = 0;
  XQueueHandle xq = 0;
  FINE(HipQueueCreate(&hwq, stream));
  FINE(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  return xq;
}

static XQueueState state_of(XQueueHandle xq) {
  XQueueState state;
  FINE(XQueueQuery(xq, &state));
  return state;
}

/* Whether it does while somebody has the patience to look. */
static bool turns_idle(XQueueHandle xq) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (state_of(xq) != kQueueStateIdle) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

static void launch_mixes(hipStream_t stream, gw_u64 *data, Words &want, gw_u64 count) {
  for (gw_u64 value = 0; value < count; value++) {
    launch_mix(stream, data, data, want.size(), value);
    cpu_mix(want, want, value);
  }
}

int main() {
  hipStream_t awaited, other;
  CHECK(hipStreamCreateWithFlags(&awaited, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  const XQueueHandle long_one = queue_of(awaited), short_one = queue_of(other);
  const size_t n = 256;
  Words want = pattern_words(n, 5);
  gw_u64 *data = device_words(want);
  void *memory = nullptr;
  CHECK(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory));
  volatile uint64_t *flag = (volatile uint64_t *)memory;
  *flag = 0;
  Words beside_want = pattern_words(n, 6);
  gw_u64 *beside = device_words(beside_want);
  /* No mark comes with its commands: whoever watches it would record one. */
  FINE(XQueueSetLaunchConfig(long_one, 64, 64));
  int seen = 0;
  for (gw_u64 round = 1; round <= 10; round++) {
    std::atomic<bool> launched(false), returned(false);
    std::thread waiting([&] {
      CHECK(hipStreamWaitValue64(awaited, memory, round, hipStreamWaitValueEq, ~0ull));
      launch_mixes(awaited, beside, beside_want, 3);
      launched = true;
      CHECK(hipStreamSynchronize(awaited));
      returned = true;
    });
    while (!launched) std::this_thread::yield();
    bool is_seen = true;
    for (gw_u64 kernel = 0; kernel < 5 && is_seen; kernel++) {
      launch_mix(other, data, data, n, kernel);
      cpu_mix(want, want, kernel);
      is_seen = turns_idle(short_one);
    }
    REQUIRE(!returned && state_of(long_one) == kQueueStateReady, "it waits for the host");
    seen += is_seen;
    *flag = round;
    waiting.join();
  }
  /* Who has just begun to record an event when the other one begins to wait is caught all the same. */
  REQUIRE(seen >= 8, "idleness was seen in %d of 10 rounds", seen);
  SAME_WORDS(data, want, "the other stream's kernels");
  SAME_WORDS(beside, beside_want, "those behind the wait");
  while (state_of(long_one) != kQueueStateIdle) std::this_thread::yield();
  return passed();
}
