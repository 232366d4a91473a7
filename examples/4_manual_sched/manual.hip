/* An application that schedules its own streams: the batch stream makes way while the urgent one has work, as the
 * application says, and not as a policy does. README.md has the output.
 *
 * usage: manual [--not-suspended]
 *
 * With --not-suspended the batch stream does not make way. Returns 1 if a batch kernel was done while the stream was suspended,
 * or is missing at the end. */
#include <hip/hip_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "giveway_kernels.h" /* busy: a kernel that takes a given time */
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

#define MS 1000000ull

/* Every function of HIP and of the interface can fail; 0 is success for both. */
#define CHECK(call)                                                         \
  do {                                                                      \
    int result_ = (int)(call);                                              \
    if (result_ != 0) {                                                     \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

/* A stream of the application with an XQueue in front of it. */
typedef struct {
  hipStream_t stream;
  HwQueueHandle hwq;
  XQueueHandle xq;
} Queue;

static Queue make_queue(Priority priority) {
  Queue queue;
  CHECK(hipStreamCreateWithFlags(&queue.stream, hipStreamNonBlocking));
  CHECK(HipQueueCreate(&queue.hwq, queue.stream));
  CHECK(XQueueCreate(&queue.xq, queue.hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  /* At most 2 commands in flight, so that a suspension takes effect after at most 2 of them. */
  CHECK(XQueueSetLaunchConfig(queue.xq, 2, 1));
  /* For schedulers that go by it; while the application decides nobody looks at it. */
  CHECK(XHintPriority(queue.xq, priority));
  return queue;
}

static void destroy_queue(Queue queue) {
  CHECK(XQueueDestroy(queue.xq));
  CHECK(HwQueueDestroy(queue.hwq));
  CHECK(hipStreamDestroy(queue.stream));
}

/* `count` kernels of 5 ms, and behind each of them a mark of the application's: how many have run. */
static void submit(Queue queue, int *done, int count) {
  for (int i = 0; i < count; i++) {
    unsigned long long duration = 5 * MS;
    unsigned int rounds = 1;
    void *arguments[] = {&duration, &rounds};
    CHECK(hipLaunchKernel((const void *)busy, dim3(1), dim3(64), arguments, 0, queue.stream));
    CHECK(hipMemsetD32Async(done + i, 1, 1, queue.stream));
  }
}

static int count_done(const int *done, int count, hipStream_t stream) {
  int copy[64], sum = 0;
  CHECK(hipMemcpyAsync(copy, done, count * sizeof(int), hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  for (int i = 0; i < count; i++) sum += copy[i];
  return sum;
}

static const char *name_of(XQueueState state) { return state == kQueueStateReady ? "ready" : "idle"; }

int main(int argc, char **argv) {
  enum { BATCH = 40, URGENT = 4 };
  const bool suspends = argc == 1;
  if (argc > 2 || (argc == 2 && strcmp(argv[1], "--not-suspended") != 0)) {
    fprintf(stderr, "usage: manual [--not-suspended]\n");
    return 2;
  }
  XQueueState state;
  int *done;
  CHECK(hipMalloc((void **)&done, (BATCH + URGENT) * sizeof(int)));
  CHECK(hipMemset(done, 0, (BATCH + URGENT) * sizeof(int)));
  CHECK(hipDeviceSynchronize());

  CHECK(XHintSetScheduler(kSchedulerAppManaged, kPolicyHighestPriorityFirst));
  Queue batch = make_queue(PRIORITY_MIN), urgent = make_queue(PRIORITY_MAX);

  submit(batch, done, BATCH);
  CHECK(XQueueQuery(batch.xq, &state));
  printf("batch: %d kernels submitted, the queue is %s\n", BATCH, name_of(state));

  /* Something urgent has come. From here on no batch kernel begins, and those in flight have ended. */
  int before = 0;
  if (suspends) {
    CHECK(XQueueSuspend(batch.xq, kQueueSuspendFlagSyncHwQueue));
    before = count_done(done, BATCH, urgent.stream);
    printf("batch: suspended, %s\n", before < BATCH ? "some kernels are kept" : "too late");
  } else {
    printf("batch: not suspended\n");
  }

  submit(urgent, done + BATCH, URGENT);
  CHECK(XQueueWaitAll(urgent.xq));
  printf("urgent: %d of %d kernels done\n", count_done(done + BATCH, URGENT, urgent.stream), URGENT);
  /* A stream that is not suspended goes on without the application, and this ends. */
  if (!suspends) CHECK(XQueueWaitAll(batch.xq));
  int meanwhile = count_done(done, BATCH, urgent.stream) - before;
  printf("batch: %d kernels done meanwhile\n", meanwhile);

  if (suspends) CHECK(XQueueResume(batch.xq, kQueueResumeFlagNone));
  CHECK(XQueueWaitAll(batch.xq));
  CHECK(XQueueQuery(batch.xq, &state));
  int all = count_done(done, BATCH, batch.stream);
  printf("batch: %s%d of %d kernels done, the queue is %s\n", suspends ? "resumed, " : "", all, BATCH, name_of(state));

  destroy_queue(urgent);
  destroy_queue(batch);
  CHECK(hipFree(done));
  return meanwhile == 0 && all == BATCH ? 0 : 1;
}
