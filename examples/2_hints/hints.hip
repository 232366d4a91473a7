/* The tasks of 1_transparent in a program that gives its hints itself: it asks for the scheduler of all programs, puts an
 * XQueue in front of its stream, and says how urgent that is. It needs neither xcli nor the environment.
 *
 * usage: hints NAME COUNT STEPS PRIORITY
 *
 * It begins when it gets a line of input, so that run.sh can start two of them and choose which one begins first. */
#include "tasks.h"
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

int main(int argc, char **argv) {
  if (argc != 5 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1) {
    fprintf(stderr, "usage: hints NAME COUNT STEPS PRIORITY (%d to %d)\n", PRIORITY_MIN, PRIORITY_MAX);
    return 2;
  }
  say_lines_at_once();
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));

  /* xserver decides. Its policy is that of xserver, and the second argument counts for a local scheduler only. */
  CHECK(XHintSetScheduler(kSchedulerGlobal, kPolicyHighestPriorityFirst));
  HwQueueHandle hwq;
  XQueueHandle xq;
  CHECK(HipQueueCreate(&hwq, stream));
  CHECK(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  CHECK(XHintPriority(xq, atoi(argv[4])));
  {
    Tasks tasks(argv[1], stream, atoi(argv[2]), atoi(argv[3]));
    printf("%s: ready\n", argv[1]);
    getchar();
    tasks.submit();
    tasks.wait();
  }
  CHECK(XQueueDestroy(xq));
  CHECK(HwQueueDestroy(hwq));
  CHECK(hipStreamDestroy(stream));
  return 0;
}
