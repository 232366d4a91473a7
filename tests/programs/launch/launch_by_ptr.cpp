// run: plain
/* The oldest way of launching: hipConfigureCall, hipSetupArgument, hipLaunchByPtr. */
#include "check.h"

int main() {
  const size_t n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  launch_busy(stream, MS);
  for (gw_u64 i = 0; i < 40; i++) {
    hipStream_t at = i % 4 == 3 ? nullptr : stream;
    gw_u64 *dst = data;
    const gw_u64 *src = data;
    gw_u32 count = (gw_u32)n;
    gw_u64 value = i;
    CHECK(hipConfigureCall(dim3(4), dim3(256), 0, at));
    CHECK(hipSetupArgument(&dst, sizeof dst, 0));
    CHECK(hipSetupArgument(&src, sizeof src, 8));
    CHECK(hipSetupArgument(&count, sizeof count, 16));
    CHECK(hipSetupArgument(&value, sizeof value, 24));
    CHECK(hipLaunchByPtr((const void *)mix));
    dst = nullptr;
    value = ~0ull;
    cpu_mix(want, want, i);
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(data, want, "launches by pointer");
  printf("%016llx\n", digest_of(want));
  return passed();
}
