// run: plain
/* Streams with hipStreamNonBlocking do not wait for the null stream, nor it for them; blocking ones do. */
#include "check.h"

int main() {
  const size_t n = 1200;
  hipStream_t blocking, free_one;
  CHECK(hipStreamCreate(&blocking));
  CHECK(hipStreamCreateWithFlags(&free_one, hipStreamNonBlocking));
  Words want = pattern_words(n, 1), others = pattern_words(n, 2);
  gw_u64 *data = device_words(want), *other = device_words(others);
  unsigned char *pinned = nullptr;
  CHECK(hipHostMalloc((void **)&pinned, n * sizeof(gw_u64), 0));
  Gate gate;

  /* The null stream is held: the free one goes on, the blocking one does not. */
  gate.close(nullptr);
  launch_mix(nullptr, data, data, n, 1);
  launch_mix(blocking, data, data, n, 2);
  launch_mix(free_one, other, other, n, 3);
  CHECK(hipMemcpyAsync(pinned, other, n * sizeof(gw_u64), hipMemcpyDeviceToHost, free_one));
  CHECK(hipStreamSynchronize(free_one));
  EXPECT(hipStreamQuery(blocking), hipErrorNotReady);
  cpu_mix(others, others, 3);
  SAME(pinned, others.data(), n * sizeof(gw_u64), "beside a null stream that is held");
  gate.open();
  CHECK(hipStreamSynchronize(blocking));
  cpu_mix(want, want, 1);
  cpu_mix(want, want, 2);
  SAME_WORDS(data, want, "behind the null stream");
  printf("behind the null stream: only the blocking one\n");

  /* The free one is held: the null stream does not wait for it. */
  gate.close(free_one);
  launch_mix(free_one, other, other, n, 4);
  launch_mix(blocking, data, data, n, 5);
  launch_mix(nullptr, data, data, n, 6);
  CHECK(hipStreamSynchronize(nullptr));
  EXPECT(hipStreamQuery(free_one), hipErrorNotReady);
  cpu_mix(want, want, 5);
  cpu_mix(want, want, 6);
  SAME_WORDS(data, want, "the null stream behind the blocking one");
  gate.open();
  CHECK(hipStreamSynchronize(free_one));
  cpu_mix(others, others, 4);
  SAME_WORDS(other, others, "the free one, at last");
  printf("the null stream does not wait for the other one\n");
  return passed();
}
