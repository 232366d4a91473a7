// run: env XSCHED_AUTO_XQUEUE_THRESHOLD=1 | every-mode
/* A stream waits for something that its own program does only after further calls: a value that the host stores, a host
 * function that waits for the host. None of those calls waits for it, so none may wait for anything else either, however
 * little of the stream's work may be in flight at a time. */
#include "check.h"

#include <atomic>

static std::atomic<bool> gate;

static void wait_for_gate(void *) {
  while (!gate) usleep(50);
}

static void called_back(hipStream_t, hipError_t, void *) { wait_for_gate(nullptr); }

int main() {
  const size_t n = 300;
  hipStream_t stream, other;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  volatile uint32_t *opens, *pinned;
  CHECK(hipHostMalloc((void **)&opens, 64, 0));
  CHECK(hipHostMalloc((void **)&pinned, 64, 0));
  std::vector<uint32_t> memory(1024);
  volatile uint32_t *registered = memory.data() + 100;
  CHECK(hipHostRegister((void *)registered, 256, 0));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);

  for (gw_u64 round = 0; round < 6; round++) {
    *opens = 0, *pinned = 0, registered[0] = 0, registered[63] = 0, gate = false;
    bool by_value = round % 3 == 0;
    if (by_value) {
      CHECK(hipStreamWaitValue32(stream, (void *)opens, 1, hipStreamWaitValueEq, ~0u));
    } else if (round % 3 == 1) {
      CHECK(hipStreamAddCallback(stream, called_back, nullptr, 0));
    } else {
      CHECK(hipStreamWaitValue32(stream, (void *)opens, 3, hipStreamWaitValueGte, ~0u));
      CHECK(hipStreamAddCallback(stream, called_back, nullptr, 0));
    }
    /* All of this is behind it. */
    launch_mix(stream, data, data, n, round);
    cpu_mix(want, want, round);
    CHECK(hipStreamWriteValue32(stream, (void *)registered, 7, 0));
    CHECK(hipStreamWriteValue32(stream, (void *)(registered + 63), 9, 0));
    CHECK(hipStreamWriteValue32(stream, (void *)pinned, 5, 0));
    CHECK(hipMemcpyAsync((void *)(registered + 1), data, 8, hipMemcpyDeviceToHost, stream));
    if (by_value) CHECK(hipStreamWaitValue32(stream, (void *)(registered + 63), 9, hipStreamWaitValueGte, ~0u));
    EXPECT(hipStreamQuery(stream), hipErrorNotReady);
    /* What another stream does is not behind it, but what waits for values follows all that is. */
    CHECK(hipStreamWaitValue32(other, (void *)opens, 0, hipStreamWaitValueGte, ~0u));
    CHECK(hipStreamSynchronize(other));
    REQUIRE(registered[0] == 0 && *pinned == 0, "the stream has not waited");
    *opens = by_value ? 1 : 3;
    gate = true;
    CHECK(hipStreamSynchronize(stream));
    REQUIRE(registered[0] == 7 && registered[63] == 9 && *pinned == 5, "the values are %u, %u and %u", registered[0],
            registered[63], *pinned);
    printf("round %llu\n", round);
  }
  SAME_WORDS(data, want, "behind what the host opens");

  /* The runtime says at once what is not in registered memory. */
  *opens = 0;
  CHECK(hipStreamWaitValue32(stream, (void *)opens, 1, hipStreamWaitValueEq, ~0u));
  show("over the end", hipStreamWriteValue64(stream, (void *)(registered + 64), 7, 0));
  show("in front", hipStreamWriteValue32(stream, (void *)(registered - 1), 7, 0));
  *opens = 1;
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipHostUnregister((void *)registered));
  return passed();
}
