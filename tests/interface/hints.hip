/* A program that says of itself and of its queue what policies go by, and works until its input ends: `hints SHARE`. What its
 * kernels leave in memory shows that each ran once, in order, whoever decided meanwhile. */
#include "results.h"
#include "processes.h"

#include "xsched/hip/hal.h"

int main(int argc, char **argv) {
  REQUIRE(argc > 1, "usage: hints SHARE");
  const size_t n = 256;
  Words want(n, 0);
  gw_u64 *data = device_words(want);
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  HwQueueHandle hwq = 0;
  XQueueHandle xq = 0;
  FINE(HipQueueCreate(&hwq, stream));
  /* What is said of one queue is nothing that the next one on its stream has heard. */
  FINE(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  FINE(XHintPriority(xq, 9));
  FINE(XHintDeadline(xq, 4000));
  FINE(XQueueDestroy(xq));
  FINE(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  FINE(XHintUtilization(xq, atoi(argv[1])));
  FINE(XHintTimeslice(2000));
  FINE(XHintDeadline(xq, 9000));
  FINE(XHintKDeadline(2));
  FINE(XHintLaxity(xq, 5000, PRIORITY_MIN, 3));
  FINE(XHintArrival(xq, 3600 * 1000000ll));
  FINE(XHintPreemptible(xq, 0));
  FINE(XHintJob(4));
  FINE(XHintCap(30));
  FINE(XHintSetScheduler(kSchedulerGlobal, kPolicyHighestPriorityFirst));
  printf("ready\n");
  fflush(stdout);
  for (gw_u64 round = 0; !input_has_ended(); round++) {
    launch_busy(stream, MS);
    launch_mix(stream, data, data, n, round);
    cpu_mix(want, want, round);
    /* Never idle, and never far ahead of the device. */
    if (round % 8 == 7) CHECK(hipStreamSynchronize(stream));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "each kernel once, in order");
  FINE(XQueueDestroy(xq));
  FINE(HwQueueDestroy(hwq));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
