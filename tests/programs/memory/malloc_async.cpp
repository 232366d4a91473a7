// run: plain
/* hipMallocAsync and hipFreeAsync: a block is freed behind the work that uses it, and what gets its memory next, on the
 * same stream or another one, comes behind that. */
#include "check.h"

int main() {
  const size_t n = 4096, bytes = n * 8;
  int supported = 7;
  CHECK(hipDeviceGetAttribute(&supported, hipDeviceAttributeMemoryPoolsSupported, 0));
  printf("supported: %d\n", supported);
  hipStream_t streams[2];
  hipEvent_t freed;
  for (auto &stream : streams) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&freed, hipEventDisableTiming));
  gw_u64 *kept = device_alloc<gw_u64>(n);
  Words sum(n, 0), zero(n, 0);
  CHECK(hipMemset(kept, 0, bytes));
  for (gw_u64 i = 0; i < 40; i++) {
    hipStream_t stream = streams[i % 2], next = streams[(i + 1) % 2];
    gw_u64 *block = nullptr;
    hipError_t error = hipMallocAsync((void **)&block, bytes, stream);
    if (error != hipSuccess) {
      show("hipMallocAsync", error);
      return passed();
    }
    if (i % 8 == 0) launch_busy(stream, MS);
    CHECK(hipMemsetAsync(block, (int)i, bytes, stream));
    launch_mix(stream, block, block, n, i);
    launch_mix(stream, kept, block, n, i);
    CHECK(hipFreeAsync(block, stream));
    CHECK(hipEventRecord(freed, stream));
    CHECK(hipStreamWaitEvent(next, freed, 0));
    Words words(n);
    memset(words.data(), (int)i, bytes);
    cpu_mix(words, words, i);
    cpu_mix(sum, words, i);
  }
  for (auto stream : streams) CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(kept, sum, "what the blocks left behind");
  printf("%016llx\n", digest_of(sum));
  void *p = nullptr;
  show("no size", hipMallocAsync(&p, 0, streams[0]));
  show("no place", hipMallocAsync(nullptr, 64, streams[0]));
  show("nothing to free", hipFreeAsync(nullptr, streams[0]));
  show("memory of hipMalloc", hipFreeAsync(kept, streams[0]));
  CHECK(hipStreamSynchronize(streams[0]));
  return passed();
}
