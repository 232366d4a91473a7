// run: plain
/* Launches that HIP refuses are refused by the call, with work pending on the stream and without, and leave nothing behind. */
#include "check.h"

int main() {
  const size_t n = 256;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want), *dst = data;
  const gw_u64 *src = data;
  gw_u32 count = (gw_u32)n;
  gw_u64 value = 1;
  void *arguments[] = {&dst, &src, &count, &value};
  const void *function = (const void *)mix;
  Gate gate;
  for (bool pending : {false, true}) {
    printf("%s\n", pending ? "behind work" : "on an empty stream");
    if (pending) gate.close(stream);
    show("too many threads", hipLaunchKernel(function, dim3(1), dim3(1025), arguments, 0, stream));
    show("too many in y", hipLaunchKernel(function, dim3(1), dim3(64, 64), arguments, 0, stream));
    show("no threads", hipLaunchKernel(function, dim3(1), dim3(0), arguments, 0, stream));
    show("no blocks", hipLaunchKernel(function, dim3(1, 0, 1), dim3(64), arguments, 0, stream));
#if HIP_VERSION_MAJOR < 7 /* 7.2.4 launches it */
    show("too large a grid",
         hipLaunchKernel(function, dim3(0xFFFFFFFF, 0xFFFF, 1), dim3(1024), arguments, 0, stream));
#endif
    show("too much shared memory", hipLaunchKernel(function, dim3(1), dim3(64), arguments, 1 << 20, stream));
    show("no function", hipLaunchKernel(nullptr, dim3(1), dim3(64), arguments, 0, stream));
#if HIP_VERSION_MAJOR < 7 /* 7.2.4 crashes */
    show("what is no function", hipLaunchKernel(&value, dim3(1), dim3(64), arguments, 0, stream));
    show("cooperative, not at all a function",
         hipLaunchCooperativeKernel(&value, dim3(1), dim3(64), arguments, 0, stream));
#endif
    show("no module function",
         hipModuleLaunchKernel(nullptr, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
    show("cooperative, too large",
         hipLaunchCooperativeKernel(function, dim3(1 << 20), dim3(1024), arguments, 0, stream));
    show("a good one", hipLaunchKernel(function, dim3(1), dim3(256), arguments, 0, stream));
    cpu_mix(want, want, 1);
  }
  gate.open();
  show("the end", hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "two good launches");
  printf("%016llx\n", digest_of(want));
  return passed();
}
