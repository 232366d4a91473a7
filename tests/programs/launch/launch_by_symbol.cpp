// run: from-hip 6
/* A module's function of a kernel of the program's (hipGetFuncBySymbol) is launched between others on the same stream. */
#include "check.h"

int main() {
  const gw_u32 n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 3);
  gw_u64 *data = device_words(want);
  hipFunction_t function = nullptr;
  CHECK(hipGetFuncBySymbol(&function, (const void *)mix));
  for (gw_u64 value = 0; value < 20; value++) {
    gw_u32 count = n;
    gw_u64 *dst = data, *src = data, given = value;
    void *arguments[] = {&dst, &src, &count, &given};
    CHECK(hipModuleLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
    given = ~0ull;
    cpu_mix(want, want, value);
    launch_mix(stream, data, data, n, 100 + value);
    cpu_mix(want, want, 100 + value);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "launches by a symbol's function");
  printf("%016llx\n", digest_of(want));
  EXPECT(hipGetFuncBySymbol(&function, &want), hipErrorInvalidDeviceFunction);
  (void)hipGetLastError();
  CHECK(hipFree(data));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
