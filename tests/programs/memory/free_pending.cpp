// run: plain
/* hipFree while work on the memory is pending, on several streams; memory that is had again right after holds only what is
 * put there afterwards. */
#include "check.h"

int main() {
  const size_t n = 60000, bytes = n * 8;
  hipStream_t streams[2];
  CHECK(hipStreamCreate(&streams[0]));
  CHECK(hipStreamCreateWithFlags(&streams[1], hipStreamNonBlocking));
  gw_u64 *sums[2];
  Words want[2];
  for (int i = 0; i < 2; i++) {
    want[i] = pattern_words(n, (gw_u64)i);
    sums[i] = device_words(want[i]);
  }
  for (gw_u64 i = 0; i < 24; i++) {
    hipStream_t stream = streams[i % 2];
    Words words = pattern_words(n, i + 10);
    gw_u64 *block = device_alloc<gw_u64>(n);
    CHECK(hipMemcpyAsync(block, words.data(), bytes, hipMemcpyHostToDevice, stream));
    if (i % 6 == 0) launch_busy(stream, MS);
    launch_mix(stream, sums[i % 2], block, n, i);
    cpu_mix(want[i % 2], words, i);
    CHECK(hipFree(block));
    gw_u64 *again = device_alloc<gw_u64>(n);
    CHECK(hipMemsetAsync(again, 0xEE, bytes, streams[(i + 1) % 2]));
    CHECK(hipFree(again));
  }
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 2; i++) {
    SAME_WORDS(sums[i], want[i], "stream " + std::to_string(i));
    printf("stream %d %016llx\n", i, digest_of(want[i]));
  }
  show("twice", hipFree(sums[0]));
  show("twice", hipFree(sums[0]));
  return passed();
}
