// run: every-mode
/* More commands than the rings hold: 10,000 mix in one stream, 5,000 tiny busy kernels, thousands of copies.
 */
#include "check.h"

static void many_mix(hipStream_t stream, int count) {
  const size_t n = 256;
  Words want = pattern_words(n, 1);
  gw_u64 *a = device_words(want);
  for (int i = 0; i < count; i++) launch_mix(stream, a, a, n, (gw_u64)i);
  for (int i = 0; i < count; i++) cpu_mix(want, want, (gw_u64)i);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "many mix");
  printf("%d mix %016llx\n", count, digest_of(want));
  CHECK(hipFree(a));
}

static void many_busy(hipStream_t stream, int count, gw_u64 each_ns) {
  hipEvent_t start, stop;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  CHECK(hipEventRecord(start, stream));
  for (int i = 0; i < count; i++) launch_busy(stream, each_ns);
  CHECK(hipEventRecord(stop, stream));
  CHECK(hipEventSynchronize(stop));
  float ms = 0, least = (float)count * (float)each_ns / 1e6f;
  CHECK(hipEventElapsedTime(&ms, start, stop));
  REQUIRE(ms >= 0.99f * least, "%d kernels took %g ms, they last %g ms", count, (double)ms, (double)least);
  CHECK(hipEventDestroy(start));
  CHECK(hipEventDestroy(stop));
  printf("%d tiny kernels took at least their sum\n", count);
}

static void many_copies(hipStream_t stream, int count) {
  const size_t n = 4096;
  void *memory = nullptr;
  CHECK(hipHostMalloc(&memory, n * sizeof(gw_u64), hipHostMallocDefault));
  gw_u64 *host = (gw_u64 *)memory;
  Words want = pattern_words(n, 2);
  memcpy(host, want.data(), n * sizeof(gw_u64));
  gw_u64 *a = device_alloc<gw_u64>(n);
  for (int i = 0; i < count; i++) {
    CHECK(hipMemcpyAsync(a, host, n * sizeof(gw_u64), hipMemcpyHostToDevice, stream));
    launch_mix(stream, a, a, n / 64, (gw_u64)i);
    CHECK(hipMemcpyAsync(host, a, n * sizeof(gw_u64), hipMemcpyDeviceToHost, stream));
  }
  CHECK(hipStreamSynchronize(stream));
  Words part(want.begin(), want.begin() + (long)(n / 64));
  for (int i = 0; i < count; i++) cpu_mix(part, part, (gw_u64)i);
  memcpy(want.data(), part.data(), part.size() * sizeof(gw_u64));
  SAME(host, want.data(), n * sizeof(gw_u64), "copies there and back");
  printf("%d copies there and back %016llx\n", count, digest_of(want));
  CHECK(hipHostFree(memory));
  CHECK(hipFree(a));
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  many_mix(stream, 10000);
  many_mix(nullptr, 3000);
  many_busy(stream, 5000, 2000);
  many_copies(stream, 1000);
  CHECK(hipStreamDestroy(stream));
  return passed();
}
