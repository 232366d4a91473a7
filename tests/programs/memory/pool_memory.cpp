// run: plain
/* Memory of pools: what a stream gives back it gets again while its work still runs, another stream only what is safe, and
 * the pool's numbers say so. No stream is destroyed while a pool holds something: 5.2.3 hangs there
 * (Heap::RemoveStream in hip_mempool_impl.cpp never goes on). */
#include "check.h"

static const size_t N = 4096;

static unsigned long long used(hipMemPool_t pool) {
  uint64_t bytes = 0;
  CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &bytes));
  return bytes;
}

int main() {
  hipStream_t first, second;
  CHECK(hipStreamCreateWithFlags(&first, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  hipMemPool_t pool, own;
  CHECK(hipDeviceGetDefaultMemPool(&pool, 0));
  hipMemPoolProps props = {};
  props.allocType = hipMemAllocationTypePinned;
  props.location.type = hipMemLocationTypeDevice;
  props.location.id = 0;
  CHECK(hipMemPoolCreate(&own, &props));
  Words wa = pattern_words(N, 1), wb(N, 0);
  gw_u64 *a = device_words(wa), *b = device_words(wb);

  /* Allocated, used and given back again and again, in the order of one stream. */
  for (gw_u64 round = 0; round < 40; round++) {
    gw_u64 *block = nullptr;
    if (round % 2 == 0) {
      CHECK(hipMallocAsync((void **)&block, N * 8, first));
    } else {
      CHECK(hipMallocFromPoolAsync((void **)&block, N * 8, own, first));
    }
    REQUIRE(block != nullptr, "no memory");
    CHECK(hipMemcpyDtoDAsync(block, a, N * 8, first));
    launch_mix(first, block, b, N, round);
    CHECK(hipMemcpyDtoDAsync(b, block, N * 8, first));
    CHECK(hipFreeAsync(block, first));
    Words mixed = wa;
    cpu_mix(mixed, wb, round);
    wb = mixed;
  }
  printf("in use %llu %llu\n", used(pool), used(own));
  CHECK(hipStreamSynchronize(first));
  SAME_WORDS(b, wb, "one stream");
  printf("one stream %016llx\n", digest_of(wb));

  /* Used on another stream before it is given back. */
  hipEvent_t ready, done;
  CHECK(hipEventCreateWithFlags(&ready, hipEventDisableTiming));
  CHECK(hipEventCreateWithFlags(&done, hipEventDisableTiming));
  for (gw_u64 round = 0; round < 20; round++) {
    gw_u64 *block = nullptr, *more = nullptr;
    CHECK(hipMallocAsync((void **)&block, N * 8, first));
    CHECK(hipMallocAsync((void **)&more, N * 4, first));
    printf("in use %llu\n", used(pool));
    CHECK(hipMemcpyDtoDAsync(block, b, N * 8, first));
    CHECK(hipEventRecord(ready, first));
    CHECK(hipStreamWaitEvent(second, ready, 0));
    launch_mix(second, block, a, N, 500 + round);
    CHECK(hipEventRecord(done, second));
    CHECK(hipStreamWaitEvent(first, done, 0));
    CHECK(hipMemcpyDtoDAsync(b, block, N * 8, first));
    CHECK(hipFreeAsync(block, first));
    CHECK(hipFreeAsync(more, first));
    cpu_mix(wb, wa, 500 + round);
  }
  CHECK(hipStreamSynchronize(first));
  SAME_WORDS(b, wb, "two streams");
  printf("two streams %016llx, in use %llu\n", digest_of(wb), used(pool));

  show("nothing to free", hipFreeAsync(nullptr, first));
  gw_u64 *block = nullptr;
  EXPECT(hipMallocAsync(nullptr, 64, first), hipErrorInvalidValue);
  /* Memory that is from no pool is freed as well, and at once. */
  gw_u64 *plain = device_words(wa);
  launch_mix(first, plain, a, N, 1);
  CHECK(hipFreeAsync(plain, first));
  CHECK(hipMallocAsync((void **)&block, 1 << 20, first));
  CHECK(hipFreeAsync(block, first));
  CHECK(hipStreamSynchronize(first));
  CHECK(hipMemPoolTrimTo(pool, 0));
  CHECK(hipMemPoolTrimTo(own, 0));
  CHECK(hipMemPoolDestroy(own));
  CHECK(hipEventDestroy(ready));
  CHECK(hipEventDestroy(done));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
