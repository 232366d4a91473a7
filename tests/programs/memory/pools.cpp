// run: plain
/* Memory pools: an own one and the device's, their attributes, trimming and destruction while blocks are in use. */
#include "check.h"

int main() {
  const size_t n = 2048, bytes = n * 8;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  hipMemPool_t ours = nullptr, current = nullptr, usual = nullptr;
  hipMemPoolProps properties;
  memset((void *)&properties, 0, sizeof properties);
  properties.allocType = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  hipError_t made = hipMemPoolCreate(&ours, &properties);
  show("a pool", made);
  show("the device's", hipDeviceGetDefaultMemPool(&usual, 0));
  if (made != hipSuccess) return passed();
  show("the current one", hipDeviceGetMemPool(&current, 0));
  printf("they are %s\n", current == usual ? "the same" : "two");
  uint64_t threshold = 1 << 20, got = 7;
  show("its threshold", hipMemPoolSetAttribute(ours, hipMemPoolAttrReleaseThreshold, &threshold));
  show("read back", hipMemPoolGetAttribute(ours, hipMemPoolAttrReleaseThreshold, &got));
  printf("%llu\n", (gw_u64)got);
  show("made the device's", hipDeviceSetMemPool(0, ours));
  Words sum(n, 0);
  gw_u64 *kept = device_words(sum);
  launch_busy(stream, 2 * MS);
  for (gw_u64 i = 0; i < 20; i++) {
    gw_u64 *block = nullptr;
    CHECK(hipMallocFromPoolAsync((void **)&block, bytes, ours, stream));
    CHECK(hipMemsetAsync(block, (int)i, bytes, stream));
    launch_mix(stream, kept, block, n, i);
    CHECK(hipFreeAsync(block, stream));
    Words words(n);
    memset(words.data(), (int)i, bytes);
    cpu_mix(sum, words, i);
    if (i % 5 == 4) show("trimmed", hipMemPoolTrimTo(ours, 0));
  }
  gw_u64 *last = nullptr;
  CHECK(hipMallocFromPoolAsync((void **)&last, bytes, ours, stream));
  launch_mix(stream, kept, kept, n, 99);
  cpu_mix(sum, sum, 99);
  CHECK(hipFreeAsync(last, stream));
  show("the usual one again", hipDeviceSetMemPool(0, usual));
  CHECK(hipStreamSynchronize(stream));
  show("destroyed", hipMemPoolDestroy(ours));
  SAME_WORDS(kept, sum, "blocks of a pool");
  printf("%016llx\n", digest_of(sum));
  show("no pool", hipMemPoolDestroy(nullptr));
  show("a block of no pool", hipMallocFromPoolAsync((void **)&last, bytes, nullptr, stream));
  show("trim no pool", hipMemPoolTrimTo(nullptr, 0));
  return passed();
}
