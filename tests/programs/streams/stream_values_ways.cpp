// run: plain
/* Values in memory as the order between streams: a stream waits for what another one, or the host, writes. Writes stand in
 * their stream's order. Wrong arguments are refused in the call. */
#include "check.h"

static const size_t N = 900;

int main() {
  hipStream_t first, second;
  CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);
  gw_u64 *flags = nullptr, *device_flags = device_alloc<gw_u64>(16);
  CHECK(hipHostMalloc((void **)&flags, 128, 0));
  memset(flags, 0, 128);
  CHECK(hipMemset(device_flags, 0, 128));
  CHECK(hipDeviceSynchronize());

  /* The writer first: the wait finds the value, sooner or later. */
  for (gw_u64 round = 1; round <= 12; round++) {
    launch_mix(first, a, b, N, round);
    cpu_mix(wa, wb, round);
    CHECK(hipStreamWriteValue32(first, flags, (uint32_t)round, 0));
    CHECK(hipStreamWaitValue32(second, flags, (uint32_t)round, hipStreamWaitValueGte, 0xFFFFFFFF));
    launch_mix(second, b, a, N, 100 + round);
    cpu_mix(wb, wa, 100 + round);
    CHECK(hipStreamWriteValue64(second, flags + 1, round << 33, 0));
    CHECK(hipStreamWaitValue64(first, flags + 1, round << 33, hipStreamWaitValueEq, ~0ull));
  }
  CHECK(hipStreamSynchronize(first));
  CHECK(hipStreamSynchronize(second));
  SAME_WORDS(a, wa, "streams that take turns");
  SAME_WORDS(b, wb, "streams that take turns");
  REQUIRE(flags[0] == 12 && flags[1] == 12ull << 33, "%llx %llx", flags[0], flags[1]);
  printf("turns %016llx\n", digest_of(wb));

  /* Writes lie between the commands of their stream, a copy sees the one before it. */
  gw_u64 *seen = nullptr;
  CHECK(hipHostMalloc((void **)&seen, 16 * 8, 0));
  memset(seen, 0, 128);
  for (gw_u64 i = 0; i < 16; i++) {
    CHECK(hipStreamWriteValue64(first, device_flags, 1000 + i, 0));
    CHECK(hipStreamWriteValue32(first, (gw_u32 *)device_flags + 1, (uint32_t)i, 0));
    CHECK(hipMemcpyAsync(seen + i, device_flags, 8, hipMemcpyDeviceToHost, first));
  }
  CHECK(hipStreamSynchronize(first));
  for (gw_u64 i = 0; i < 16; i++) REQUIRE(seen[i] == ((i << 32) | (1000 + i)), "%llu: %llx", i, seen[i]);

  /* The host lets a stream go on. */
  CHECK(hipStreamWaitValue32(second, flags + 2, 5, hipStreamWaitValueAnd, 0xFFFFFFFF));
  launch_mix(second, b, a, N, 300);
  cpu_mix(wb, wa, 300);
  __atomic_store_n(flags + 2, 4, __ATOMIC_SEQ_CST);
  CHECK(hipStreamSynchronize(second));
  SAME_WORDS(b, wb, "after the host's value");
  printf("values %016llx\n", digest_of(wb));

  gw_u64 unknown = 0;
  EXPECT(hipStreamWriteValue32(first, nullptr, 1, 0), hipErrorInvalidValue);
  EXPECT(hipStreamWriteValue64(first, &unknown, 1, 0), hipErrorInvalidValue);
  EXPECT(hipStreamWaitValue32(first, &unknown, 0, hipStreamWaitValueEq, 0), hipErrorInvalidValue);
  CHECK(hipStreamDestroy(first));
  CHECK(hipStreamDestroy(second));
  CHECK(hipHostFree(flags));
  CHECK(hipHostFree(seen));
  CHECK(hipFree(device_flags));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
