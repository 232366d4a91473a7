// run: plain
/* The value 1 as a stream: hipStreamLegacy where the runtime knows it, an invalid handle where it does not. */
#include "check.h"

int main() {
  hipStream_t one = (hipStream_t)1;
  const size_t n = 100;
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want), *dst = data;
  const gw_u64 *src = data;
  gw_u32 count = (gw_u32)n;
  gw_u64 value = 1;
  void *arguments[] = {&dst, &src, &count, &value};
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  hipError_t launched = hipLaunchKernel((const void *)mix, dim3(1), dim3(256), arguments, 0, one);
  show("a launch", launched);
  if (launched == hipSuccess) cpu_mix(want, want, 1);
  hipError_t filled = hipMemsetAsync(data, 7, 16, one);
  show("a fill", filled);
  if (filled == hipSuccess) memset(want.data(), 7, 16);
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  show("a record", hipEventRecord(event, one));
  show("a wait", hipStreamWaitEvent(one, event, 0));
  show("a query", hipStreamQuery(one));
  show("a synchronization", hipStreamSynchronize(one));
  launch_mix(nullptr, data, data, n, 2);
  cpu_mix(want, want, 2);
  SAME_WORDS(data, want, "what was carried out");
  printf("%016llx\n", digest_of(want));
  return passed();
}
