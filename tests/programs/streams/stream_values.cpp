// run: plain
/* hipStreamWriteValue and hipStreamWaitValue, 32 and 64 bits, with all conditions: streams that wait for the host's, their
 * own and each other's values. */
#include "check.h"

int main() {
  const size_t n = 800;
  int can = 7;
  CHECK(hipDeviceGetAttribute(&can, hipDeviceAttributeCanUseStreamWaitValue, 0));
  printf("can wait: %d\n", can);
  hipStream_t streams[2];
  for (auto &stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  void *memory = nullptr;
  CHECK(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory));
  volatile uint64_t *wide = (volatile uint64_t *)memory;
  volatile uint32_t *narrow = (volatile uint32_t *)memory;
  *wide = 0;
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);

  /* The host opens, with each condition. */
  struct Case {
    const char *name;
    unsigned flags;
    uint64_t value, mask, opens;
  } cases[] = {
      {"equal", hipStreamWaitValueEq, 5, ~0ull, 5},
      {"not below", hipStreamWaitValueGte, 5, ~0ull, 9},
      {"and", hipStreamWaitValueAnd, 4, ~0ull, 6},
      {"nor", hipStreamWaitValueNor, 0xF0, 0xFF, 0},
      {"equal under a mask", hipStreamWaitValueEq, 2, 0xF, 0x32},
  };
  for (const Case &each : cases) {
    for (bool is_wide : {false, true}) {
      *wide = each.flags == hipStreamWaitValueNor ? 0xFF : 0;
      if (is_wide) {
        CHECK(hipStreamWaitValue64(streams[0], memory, each.value, each.flags, each.mask));
      } else {
        CHECK(hipStreamWaitValue32(streams[0], memory, (uint32_t)each.value, each.flags, (uint32_t)each.mask));
      }
      launch_mix(streams[0], data, data, n, each.value);
      cpu_mix(want, want, each.value);
      EXPECT(hipStreamQuery(streams[0]), hipErrorNotReady);
      if (is_wide) {
        *wide = each.opens;
      } else {
        *narrow = (uint32_t)each.opens;
      }
      CHECK(hipStreamSynchronize(streams[0]));
      printf("%s, %d bits\n", each.name, is_wide ? 64 : 32);
    }
  }
  SAME_WORDS(data, want, "behind values of the host");

  /* One stream writes what the other one waits for. */
  *wide = 0;
  for (uint64_t i = 1; i <= 20; i++) {
    hipStream_t writer = streams[i % 2], waiter = streams[(i + 1) % 2];
    if (i % 7 == 0) launch_busy(writer, MS);
    launch_mix(writer, data, data, n, i);
    cpu_mix(want, want, i);
    CHECK(hipStreamWriteValue64(writer, memory, i, 0));
    CHECK(hipStreamWaitValue64(waiter, memory, i, hipStreamWaitValueGte, ~0ull));
  }
  for (auto stream : streams) CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "two streams by turns");
  REQUIRE(*wide == 20, "the last value is %llu", (gw_u64)*wide);

  /* Into device memory, between kernels. */
  for (gw_u64 i = 0; i < 10; i++) {
    launch_mix(streams[0], data, data, n, i);
    cpu_mix(want, want, i);
    CHECK(hipStreamWriteValue32(streams[0], data + i, (uint32_t)(i * 3), 0));
    memcpy(&want[i], std::vector<uint32_t>{(uint32_t)(i * 3)}.data(), 4);
    CHECK(hipStreamWriteValue64(streams[0], data + 100 + i, i * 5, 0));
    want[100 + i] = i * 5;
  }
  CHECK(hipStreamSynchronize(streams[0]));
  SAME_WORDS(data, want, "values between kernels");
  printf("%016llx\n", digest_of(want));
  show("nowhere", hipStreamWriteValue32(streams[0], nullptr, 1, 0));
  show("wait nowhere", hipStreamWaitValue32(streams[0], nullptr, 1, 0, ~0u));
  CHECK(hipStreamSynchronize(streams[0]));
  return passed();
}
