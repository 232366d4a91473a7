// run: plain
/* Whoever asks whether a blocking stream is done asks for the null stream's work as well, before HIP 6; later ones ask for
 * the stream alone. A non-blocking stream has nothing to do with it. */
#include "check.h"

int main() {
  const size_t n = 1000;
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  const bool waits = version / 10000000 < 6;
  hipStream_t blocking, independent;
  CHECK(hipStreamCreate(&blocking));
  CHECK(hipStreamCreateWithFlags(&independent, hipStreamNonBlocking));
  gw_u64 *pinned;
  CHECK(hipHostMalloc((void **)&pinned, n * 8, 0));
  Words want = pattern_words(n, 7);
  std::copy(want.begin(), want.end(), pinned);
  for (hipStream_t stream : {blocking, hipStreamPerThread}) {
    Gate gate;
    gate.close(nullptr);
    for (gw_u64 i = 0; i < 20; i++) {
      launch_busy(nullptr, 500000);
      launch_mix(nullptr, pinned, pinned, n, i);
      cpu_mix(want, want, i);
    }
    EXPECT(hipStreamQuery(stream), waits ? hipErrorNotReady : hipSuccess);
    EXPECT(hipStreamQuery(independent), hipSuccess);
    CHECK(hipStreamSynchronize(independent));
    gate.open();
    CHECK(hipStreamSynchronize(stream));
    if (waits) {
      REQUIRE(std::equal(want.begin(), want.end(), pinned), "the null stream's work is not done");
      EXPECT(hipStreamQuery(stream), hipSuccess);
    }
    CHECK(hipDeviceSynchronize());
    REQUIRE(std::equal(want.begin(), want.end(), pinned), "other memory at the end");
    EXPECT(hipStreamQuery(stream), hipSuccess);
  }
  printf("%016llx\n", digest_of(want));
  return passed();
}
