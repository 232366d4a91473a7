// run: slow-path
/* What HIP refuses by what it knows of the kernel (launch bounds, blocks of a cooperative launch that fit, whether there is
 * such a function) it refuses by the call, while the stream waits for something that the program does only afterwards. */
#include "check.h"
#include <hip/hip_ext.h>

__global__ __launch_bounds__(64) void narrow(gw_u64 *data) { data[threadIdx.x] = 1; }

int main() {
  hipStream_t stream, other;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  hipEvent_t start, stop;
  CHECK(hipEventCreate(&start));
  CHECK(hipEventCreate(&stop));
  const size_t n = 1024;
  Words want = pattern_words(n, 5);
  gw_u64 *data = device_words(want), *dst = data;
  const gw_u64 *src = data;
  gw_u32 count = (gw_u32)n;
  gw_u64 value = 3;
  void *mixed[] = {&dst, &src, &count, &value}, *narrowed[] = {&dst};
  const void *mixes = (const void *)mix, *narrows = (const void *)narrow;
  /* What fits exactly, by the runtime's own word. */
  int fit = 0, best = 0;
  CHECK(hipOccupancyMaxPotentialBlockSize(&fit, &best, mixes, 0, 256));
  REQUIRE(fit > 0, "nothing fits");
  Gate gate;
  for (bool held : {false, true}) {
    printf("%s\n", held ? "while the stream waits" : "on an empty stream");
    if (held) {
      gate.close(stream);
      /* And in front of the next ones stands a good one. */
      show("good", hipLaunchKernel(mixes, dim3(4), dim3(256), mixed, 0, stream));
      cpu_mix(want, want, 3);
    }
    show("65 threads of 64", hipLaunchKernel(narrows, dim3(1), dim3(65), narrowed, 0, stream));
    show("64 by 2 threads", hipLaunchKernel(narrows, dim3(1), dim3(64, 2), narrowed, 0, stream));
    show("with events",
         hipExtLaunchKernel(narrows, dim3(1), dim3(128), narrowed, 0, stream, start, stop, 0));
#if HIP_VERSION_MAJOR < 7 /* 7.2.4 crashes */
    show("no function, with events",
         hipExtLaunchKernel(&value, dim3(1), dim3(64), narrowed, 0, stream, start, stop, 0));
    show("no function", hipLaunchKernel((const void *)&gate, dim3(1), dim3(64), narrowed, 0, stream));
    show("cooperative, no function", hipLaunchCooperativeKernel(&value, dim3(1), dim3(64), mixed, 0, stream));
#endif
    show("cooperative beyond the bounds", hipLaunchCooperativeKernel(narrows, dim3(1), dim3(65), narrowed, 0, stream));
    show("cooperative, one block too many",
         hipLaunchCooperativeKernel(mixes, dim3((unsigned)fit + 1), dim3(256), mixed, 0, stream));
    show("cooperative, with too much shared memory for two",
         hipLaunchCooperativeKernel(mixes, dim3((unsigned)fit), dim3(256), mixed, 60 << 10, stream));
    /* Nobody but this thread ends the waiting: had one of the calls waited for the stream, it would not be here. */
    if (held) REQUIRE(hipStreamQuery(stream) == hipErrorNotReady, "the stream did not wait");
    (void)hipGetLastError();
    /* Other streams are not touched. */
    show("good elsewhere", hipLaunchKernel(narrows, dim3(1), dim3(64), narrowed, 0, other));
    CHECK(hipStreamSynchronize(other));
  }
  gate.open();
  show("the end", hipStreamSynchronize(stream));
  show("the device's end", hipDeviceSynchronize());
  /* What fits is taken, in its turn. */
  show("cooperative, as many as fit",
       hipLaunchCooperativeKernel(mixes, dim3((unsigned)fit), dim3(256), mixed, 0, stream));
  cpu_mix(want, want, 3);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "two good launches");
  printf("%016llx\n", digest_of(want));
  return passed();
}
