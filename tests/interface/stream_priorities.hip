/* A program that knows nothing of giveway: work on a stream of low priority, then more work on one of high priority. It says
 * which of the two is done first. With the argument `equal` both streams are normal ones. */
#include "check.h"

#include <string.h>

#include "../../examples/kernels/giveway_kernels.h" /* busy: a kernel that takes a given time */

static const unsigned THREADS = 256;

static void launch(hipStream_t stream, int count) {
  int device;
  hipDeviceProp_t properties;
  CHECK(hipGetDevice(&device));
  CHECK(hipGetDeviceProperties(&properties, device));
  /* As many work-groups as fill the device. */
  const unsigned blocks = (unsigned)(properties.multiProcessorCount * properties.maxThreadsPerMultiProcessor) / THREADS;
  gw_u64 nanoseconds = 5000000;
  gw_u32 rounds = 1;
  void *arguments[] = {&nanoseconds, &rounds};
  for (int kernel = 0; kernel < count; kernel++)
    CHECK(hipLaunchKernel((const void *)busy, dim3(blocks), dim3(THREADS), arguments, 0, stream));
}

int main(int argc, char **argv) {
  const bool equal = argc > 1 && strcmp(argv[1], "equal") == 0;
  int least, greatest;
  CHECK(hipDeviceGetStreamPriorityRange(&least, &greatest));
  hipStream_t low, high;
  CHECK(hipStreamCreateWithPriority(&low, hipStreamNonBlocking, equal ? 0 : least));
  CHECK(hipStreamCreateWithPriority(&high, hipStreamNonBlocking, equal ? 0 : greatest));
  hipEvent_t low_end, high_end;
  for (hipEvent_t *event : {&low_end, &high_end}) CHECK(hipEventCreate(event));
  for (hipStream_t stream : {low, high}) {
    launch(stream, 1); /* both have a queue now */
    CHECK(hipStreamSynchronize(stream));
  }
  Gate gate; /* both begin when everything is submitted */
  for (hipStream_t stream : {low, high}) gate.close(stream);
  launch(low, 20);
  CHECK(hipEventRecord(low_end, low));
  launch(high, 80);
  CHECK(hipEventRecord(high_end, high));
  gate.open();
  for (hipStream_t stream : {high, low}) CHECK(hipStreamSynchronize(stream));
  float high_after_low;
  CHECK(hipEventElapsedTime(&high_after_low, low_end, high_end));
  puts(high_after_low > 0 ? "low first" : "high first");
  for (hipEvent_t event : {low_end, high_end}) CHECK(hipEventDestroy(event));
  for (hipStream_t stream : {low, high}) CHECK(hipStreamDestroy(stream));
  return 0;
}
