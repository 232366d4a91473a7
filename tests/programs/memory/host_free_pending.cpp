// run: plain
/* Pinned memory freed while copies and kernels on it are pending. Registered memory is unregistered behind a
 * synchronization: HIP 5.2.3 does not wait there for streams with hipStreamNonBlocking. */
#include "check.h"

int main() {
  const size_t n = 5000, bytes = n * 8, pages = (bytes + 4095) / 4096 * 4096;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words want = pattern_words(n, 1);
  gw_u64 *sum = device_words(want), *scratch = device_alloc<gw_u64>(n);
  for (gw_u64 i = 0; i < 24; i++) {
    Words words = pattern_words(n, i + 5);
    void *host = nullptr;
    bool pinned = i % 2 == 0;
    if (pinned) {
      CHECK(hipHostMalloc(&host, bytes, 0));
    } else {
      host = aligned_alloc(4096, pages);
      CHECK(hipHostRegister(host, bytes, hipHostRegisterMapped));
    }
    memcpy(host, words.data(), bytes);
    if (i % 6 < 2) launch_busy(stream, MS);
    CHECK(hipMemcpyAsync(scratch, host, bytes, hipMemcpyHostToDevice, stream));
    launch_mix(stream, sum, scratch, n, i);
    cpu_mix(want, words, i);
    if (i % 4 < 2) {
      void *mapped = nullptr;
      CHECK(hipHostGetDevicePointer(&mapped, host, 0));
      launch_mix(stream, sum, (gw_u64 *)mapped, n, i + 100);
      cpu_mix(want, words, i + 100);
    }
    if (pinned) {
      CHECK(hipHostFree(host));
    } else {
      CHECK(hipStreamSynchronize(stream));
      CHECK(hipHostUnregister(host));
      memset(host, 0xEE, bytes);
      free(host);
    }
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(sum, want, "host memory that went while it was in use");
  printf("%016llx\n", digest_of(want));
  return passed();
}
