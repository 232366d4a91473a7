// run: slow-path
/* The less common ways to launch: by a configuration that the runtime was given before, cooperative, and on a list of
 * streams. They take their place in the order like any other, and what is refused is refused in the call. */
#include "check.h"

static const size_t N = 1024;

static void by_pointer(hipStream_t stream, gw_u64 *dst, gw_u64 *src, gw_u64 value) {
  gw_u32 count = N;
  CHECK(hipConfigureCall(dim3(N / 256), dim3(256), 0, stream));
  CHECK(hipSetupArgument(&dst, 8, 0));
  CHECK(hipSetupArgument(&src, 8, 8));
  CHECK(hipSetupArgument(&count, 4, 16));
  CHECK(hipSetupArgument(&value, 8, 24));
  CHECK(hipLaunchByPtr((const void *)mix));
}

static void cooperative(hipStream_t stream, gw_u64 *dst, gw_u64 *src, gw_u64 value) {
  gw_u32 count = N;
  void *arguments[] = {&dst, &src, &count, &value};
  CHECK(hipLaunchCooperativeKernel((void *)mix, dim3(N / 256), dim3(256), arguments, 0, stream));
}

int main() {
  hipStream_t streams[3];
  CHECK(hipStreamCreateWithFlags(&streams[0], hipStreamNonBlocking));
  CHECK(hipStreamCreate(&streams[1]));
  streams[2] = hipStreamPerThread;
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);
  for (gw_u64 round = 0; round < 30; round++) {
    /* hipConfigureCall takes hipStreamPerThread for an object in 5.2.3. */
    hipStream_t stream = streams[round % 3], real = streams[round % 2];
    launch_mix(stream, a, b, N, round);
    cpu_mix(wa, wb, round);
    if (stream == real) {
      by_pointer(stream, b, a, 100 + round);
      cpu_mix(wb, wa, 100 + round);
    }
    cooperative(stream, a, b, 200 + round);
    cpu_mix(wa, wb, 200 + round);
    if (round % 5 == 4 && stream == real) {
      hipLaunchParams params = {};
      gw_u32 count = N;
      gw_u64 value = 300 + round;
      void *arguments[] = {&b, &a, &count, &value};
      params.func = (void *)mix;
      params.gridDim = dim3(N / 256);
      params.blockDim = dim3(256);
      params.args = arguments;
      params.stream = stream;
      unsigned flags = round % 2 ? 0 : hipCooperativeLaunchMultiDeviceNoPreSync | hipCooperativeLaunchMultiDeviceNoPostSync;
      CHECK(hipExtLaunchMultiKernelMultiDevice(&params, 1, flags));
      cpu_mix(wb, wa, 300 + round);
    }
    launch_mix(stream, b, a, N, 400 + round);
    cpu_mix(wb, wa, 400 + round);
    CHECK(hipStreamSynchronize(stream));
    EXPECT(hipStreamQuery(stream), hipSuccess);
  }
  SAME_WORDS(a, wa, "launches of many kinds");
  SAME_WORDS(b, wb, "launches of many kinds");
  printf("launches %016llx %016llx\n", digest_of(wa), digest_of(wb));

  gw_u32 count = N;
  gw_u64 value = 1;
  void *arguments[] = {&a, &b, &count, &value};
  EXPECT(hipLaunchCooperativeKernel((void *)mix, dim3(1u << 20), dim3(256), arguments, 0, streams[0]),
         hipErrorCooperativeLaunchTooLarge);
  EXPECT(hipExtLaunchMultiKernelMultiDevice(nullptr, 1, 0), hipErrorInvalidValue);
  CHECK(hipStreamSynchronize(streams[0]));
  (void)hipGetLastError();
  CHECK(hipStreamDestroy(streams[0]));
  CHECK(hipStreamDestroy(streams[1]));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
