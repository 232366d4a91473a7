/* Two queues launch a captured graph again and again. Each launch is one command of its queue: a policy decides between the
 * launches, and not inside one. README.md has the output. */
#include <hip/hip_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "giveway_kernels.h" /* busy: a kernel that takes a given time; mix: one whose result shows the order */
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

enum { LOW = 40, URGENT = 10, WORDS = 256, STEPS = 3 };

/* Every function of HIP and of the interface can fail; 0 is success for both. */
#define CHECK(call)                                                           \
  do {                                                                        \
    int result_ = (int)(call);                                                \
    if (result_ != 0) {                                                       \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* A stream with an XQueue, and a graph that changes memory. */
typedef struct {
  hipStream_t stream;
  HwQueueHandle hwq;
  XQueueHandle xq;
  gw_u64 *words;
  hipGraph_t graph;
  hipGraphExec_t exec;
  hipEvent_t end; /* of its last launch */
} Queue;

/* The kernels of one launch: work of 10 ms, and steps whose results show how often and in which order they ran. */
static void enqueue(Queue *queue) {
  gw_u64 duration = 10000000; /* ns */
  gw_u32 rounds = 1, count = WORDS;
  void *busy_arguments[] = {&duration, &rounds};
  CHECK(hipLaunchKernel((const void *)busy, dim3(1), dim3(64), busy_arguments, 0, queue->stream));
  for (gw_u64 step = 0; step < STEPS; step++) {
    void *mix_arguments[] = {&queue->words, &queue->words, &count, &step};
    CHECK(hipLaunchKernel((const void *)mix, dim3(1), dim3(WORDS), mix_arguments, 0, queue->stream));
  }
}

static void make_queue(Queue *queue, Priority priority) {
  CHECK(hipMalloc((void **)&queue->words, WORDS * sizeof(gw_u64)));
  CHECK(hipMemset(queue->words, 0, WORDS * sizeof(gw_u64)));
  CHECK(hipEventCreate(&queue->end));
  CHECK(hipStreamCreateWithFlags(&queue->stream, hipStreamNonBlocking));
  CHECK(HipQueueCreate(&queue->hwq, queue->stream));
  CHECK(XQueueCreate(&queue->xq, queue->hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  /* At most 2 graph launches in flight, so that the policy's decision takes effect after at most 2 of them. */
  CHECK(XQueueSetLaunchConfig(queue->xq, 2, 1));
  CHECK(XHintPriority(queue->xq, priority));
  /* What is captured does not run, and the XQueue does not see it. */
  CHECK(hipStreamBeginCapture(queue->stream, hipStreamCaptureModeThreadLocal));
  enqueue(queue);
  CHECK(hipStreamEndCapture(queue->stream, &queue->graph));
  CHECK(hipGraphInstantiate(&queue->exec, queue->graph, NULL, NULL, 0));
}

static void destroy_queue(Queue *queue) {
  CHECK(hipGraphExecDestroy(queue->exec));
  CHECK(hipGraphDestroy(queue->graph));
  CHECK(XQueueDestroy(queue->xq));
  CHECK(HwQueueDestroy(queue->hwq));
  CHECK(hipStreamDestroy(queue->stream));
  CHECK(hipEventDestroy(queue->end));
  CHECK(hipFree(queue->words));
}

static void launch(const Queue *queue, int count) {
  for (int i = 0; i < count; i++) CHECK(hipGraphLaunch(queue->exec, queue->stream));
  CHECK(hipEventRecord(queue->end, queue->stream));
}

static int is_suspended(const Queue *queue) {
  XQueueStatistics stats;
  CHECK(XQueueStats(queue->xq, &stats, sizeof stats));
  return !stats.running;
}

static int is_idle(const Queue *queue) {
  XQueueState state;
  CHECK(XQueueQuery(queue->xq, &state));
  return state == kQueueStateIdle;
}

static int is_right(const Queue *queue, int launches) {
  gw_u64 want[WORDS] = {0}, got[WORDS];
  for (int launch = 0; launch < launches; launch++) {
    for (gw_u64 step = 0; step < STEPS; step++) {
      for (gw_u32 i = 0; i < WORDS; i++) want[i] = gw_mix_step(want[i], want[i], i, step);
    }
  }
  CHECK(hipMemcpy(got, queue->words, sizeof got, hipMemcpyDeviceToHost));
  return memcmp(got, want, sizeof got) == 0;
}

int main(int argc, char **argv) {
  Queue low, urgent;
  size_t nodes = 0;
  gw_u64 *go;
  float apart;
  /* Equal priorities: the device works for both queues. */
  const int equal = argc > 1 && strcmp(argv[1], "--equal") == 0;

  CHECK(hipExtMallocWithFlags((void **)&go, sizeof *go, hipMallocSignalMemory));
  *(volatile gw_u64 *)go = 0;
  CHECK(XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));
  make_queue(&low, 0);
  make_queue(&urgent, equal ? 0 : 1);
  CHECK(hipGraphGetNodes(urgent.graph, NULL, &nodes));
  printf("captured: a graph of %d kernels for each queue\n", (int)nodes);

  /* The urgent queue has work from here on, and cannot be complete before the program says so. */
  CHECK(hipStreamWaitValue64(urgent.stream, go, 1, hipStreamWaitValueEq, ~0ull));
  launch(&urgent, URGENT);
  printf("urgent: %d launches submitted, the first waits for the program\n", URGENT);
  /* A thread of the library decides. The output must not depend on how soon that is. */
  while (!equal && !is_suspended(&low)) usleep(100);
  launch(&low, LOW);
  int suspended;
  while (!(suspended = is_suspended(&low)) && !is_idle(&low)) usleep(100);
  printf("low: %d launches submitted, %s\n", LOW, suspended ? "suspended" : "not suspended");
  *(volatile gw_u64 *)go = 1;

  CHECK(hipStreamSynchronize(urgent.stream));
  CHECK(hipStreamSynchronize(low.stream));
  CHECK(hipEventElapsedTime(&apart, urgent.end, low.end));
  printf("order of completion: %s\n", apart > 0 ? "urgent, low" : "low, urgent");

  const int right = is_right(&low, LOW) && is_right(&urgent, URGENT);
  printf("results: %s\n", right ? "each launch ran once, with its kernels in order" : "wrong");
  destroy_queue(&urgent);
  destroy_queue(&low);
  CHECK(hipFree(go));
  return right ? 0 : 1;
}
