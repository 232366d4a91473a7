// run: every-mode
/* Errors that a program can meet, and the last-error state around them: the same natively and under the shim.
 */
#include "check.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  gw_u64 *a = device_alloc<gw_u64>(1024), *dst = a;
  const gw_u64 *src = a;
  gw_u32 n = 1024;
  gw_u64 value = 1;
  void *arguments[] = {&dst, &src, &n, &value};
  CHECK(hipMemset(a, 0, 8192));
  show("nothing wrong", hipSuccess);
  show("hipMalloc(nullptr)", hipMalloc(nullptr, 16));
  show("hipFree of a host address", hipFree(arguments));
  show("hipFree(nullptr)", hipFree(nullptr));
  show("hipMemcpy beyond the end", hipMemcpy(a, arguments, 8193, hipMemcpyHostToDevice));
  show("hipMemcpyAsync beyond the end", hipMemcpyAsync(a, a, 8193, hipMemcpyDeviceToDevice, stream));
  show("hipMemcpyAsync of nothing", hipMemcpyAsync(a, a, 0, hipMemcpyDeviceToDevice, stream));
  show("hipMemset beyond the end", hipMemset(a, 0, 8193));
  show("hipMemsetAsync(nullptr)", hipMemsetAsync(nullptr, 0, 16, stream));
  show("launch with a block of 4096",
       hipLaunchKernel((const void *)mix, dim3(1), dim3(4096), arguments, 0, stream));
  show("launch with an empty grid",
       hipLaunchKernel((const void *)mix, dim3(0), dim3(64), arguments, 0, stream));
#if HIP_VERSION_MAJOR < 7 /* which takes an address that it does not know for a hipKernel_t, and crashes */
  show("launch of an unknown function", hipLaunchKernel(arguments, dim3(1), dim3(64), arguments, 0, stream));
#endif
  show("a good launch", hipLaunchKernel((const void *)mix, dim3(4), dim3(256), arguments, 0, stream));
  show("hipSetDevice(99)", hipSetDevice(99));
  show("hipStreamCreateWithFlags(77)", hipStreamCreateWithFlags(&stream, 77));
  show("hipStreamCreate(nullptr)", hipStreamCreate(nullptr));
  show("hipEventElapsedTime(nullptr)", hipEventElapsedTime(nullptr, nullptr, nullptr));
  launch_busy(stream, 300 * MS);
  show("hipStreamQuery of a busy stream", hipStreamQuery(stream));
  int device = 0;
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  /* From 7 on only errors are kept, and this is none. */
  EXPECT(hipPeekAtLastError(), HIP_VERSION_MAJOR < 7 ? hipErrorNotReady : hipSuccess);
  show("a success after that", hipGetDevice(&device));
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  show("another error after that", hipSetDevice(99));
  EXPECT(hipStreamQuery(stream), hipErrorNotReady);
  CHECK(hipGetDevice(&device));
  show("an error of the place that it takes", hipEventQuery(nullptr));
  show("hipStreamSynchronize", hipStreamSynchronize(stream));
  Words want(1024, 0);
  cpu_mix(want, want, 1);
  SAME_WORDS(a, want, "exactly one launch was good");
  CHECK(hipFree(a));
  show("hipFree twice", hipFree(a));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
