/* A program with commands of its own: it does not call HIP where it submits work. It hands functions to two queues, and the
 * library calls each function in its turn. A policy decides which queue's turn it is. README.md has the output. */
#include <hip/hip_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "giveway_kernels.h" /* busy: a kernel that takes a given time; mix: one whose result shows the order */
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

enum { BATCH = 40, URGENT = 10, WORDS = 256 };

/* Every function of HIP and of the interface can fail; 0 is success for both. */
#define CHECK(call)                                                           \
  do {                                                                        \
    int result_ = (int)(call);                                                \
    if (result_ != 0) {                                                       \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* A queue of the program, and memory that its commands change. */
typedef struct {
  hipStream_t stream;
  HwQueueHandle hwq;
  XQueueHandle xq;
  gw_u64 *words;
  hipEvent_t end; /* of its last command */
} Queue;

/* A command: its number, the queue that it works on, and what else it does. */
typedef struct {
  Queue *queue;
  gw_u64 number;
  gw_u64 *waits_for; /* the device waits until the host has written 1; NULL: it does not */
  int is_last;
  HwCommandHandle handle;
} Command;

/* Is called by the library in the command's turn, on a thread of the library. It launches, and does not wait. */
static XResult launch(HwQueueHandle hwq, void *data) {
  Command *command = (Command *)data;
  (void)hwq; /* the hardware queue of command->queue */
  gw_u64 duration = 10000000; /* ns */
  gw_u32 rounds = 1, count = WORDS;
  void *busy_arguments[] = {&duration, &rounds};
  void *mix_arguments[] = {&command->queue->words, &command->queue->words, &count, &command->number};
  hipStream_t stream = command->queue->stream;
  hipError_t error = hipSuccess;
  if (command->waits_for) error = hipStreamWaitValue64(stream, command->waits_for, 1, hipStreamWaitValueEq, ~0ull);
  if (error == hipSuccess) error = hipLaunchKernel((const void *)busy, dim3(1), dim3(64), busy_arguments, 0, stream);
  if (error == hipSuccess) error = hipLaunchKernel((const void *)mix, dim3(1), dim3(WORDS), mix_arguments, 0, stream);
  if (error == hipSuccess && command->is_last) error = hipEventRecord(command->queue->end, stream);
  return error == hipSuccess ? kXSchedSuccess : kXSchedErrorHardware;
}

static void make_queue(Queue *queue, Priority priority) {
  CHECK(hipMalloc((void **)&queue->words, WORDS * sizeof(gw_u64)));
  CHECK(hipMemset(queue->words, 0, WORDS * sizeof(gw_u64)));
  CHECK(hipEventCreate(&queue->end));
  CHECK(hipStreamCreateWithFlags(&queue->stream, hipStreamNonBlocking));
  CHECK(HipQueueCreate(&queue->hwq, queue->stream));
  CHECK(XQueueCreate(&queue->xq, queue->hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  /* At most 2 commands in flight, so that the policy's decision takes effect after at most 2 of them. */
  CHECK(XQueueSetLaunchConfig(queue->xq, 2, 1));
  CHECK(XHintPriority(queue->xq, priority));
}

static void destroy_queue(Queue *queue) {
  CHECK(XQueueDestroy(queue->xq));
  CHECK(HwQueueDestroy(queue->hwq));
  CHECK(hipStreamDestroy(queue->stream));
  CHECK(hipEventDestroy(queue->end));
  CHECK(hipFree(queue->words));
}

/* A submitted command belongs to its queue, and needs no HwCommandDestroy. */
static void submit(Queue *queue, Command *commands, int count, gw_u64 *first_waits_for) {
  for (int i = 0; i < count; i++) {
    commands[i].queue = queue;
    commands[i].number = (gw_u64)i;
    commands[i].waits_for = i == 0 ? first_waits_for : NULL;
    commands[i].is_last = i == count - 1;
    CHECK(HwCommandCreateCallback(&commands[i].handle, launch, &commands[i]));
    CHECK(XQueueSubmit(queue->xq, commands[i].handle));
  }
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

/* Each command ran once, and in the order of its submission: mix is neither commutative nor idempotent. */
static int is_right(const Queue *queue, int count) {
  gw_u64 want[WORDS] = {0}, got[WORDS];
  for (int number = 0; number < count; number++) {
    for (gw_u32 i = 0; i < WORDS; i++) want[i] = gw_mix_step(want[i], want[i], i, (gw_u64)number);
  }
  CHECK(hipMemcpy(got, queue->words, sizeof got, hipMemcpyDeviceToHost));
  return memcmp(got, want, sizeof got) == 0;
}

int main(int argc, char **argv) {
  static Command of_batch[BATCH], of_urgent[URGENT];
  Queue batch, urgent;
  gw_u64 *go;
  float apart;
  /* Equal priorities: the device works for both queues. */
  const int equal = argc > 1 && strcmp(argv[1], "--equal") == 0;

  CHECK(hipExtMallocWithFlags((void **)&go, sizeof *go, hipMallocSignalMemory));
  *(volatile gw_u64 *)go = 0;
  CHECK(XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));
  make_queue(&batch, 0);
  make_queue(&urgent, equal ? 0 : 1);

  /* The urgent queue has work from here on, and cannot be complete before the program says so. */
  submit(&urgent, of_urgent, URGENT, go);
  printf("urgent: %d commands submitted, the first waits for the program\n", URGENT);
  /* A thread of the library decides. The output must not depend on how soon that is. */
  while (!equal && !is_suspended(&batch)) usleep(100);
  submit(&batch, of_batch, BATCH, NULL);
  int suspended;
  while (!(suspended = is_suspended(&batch)) && !is_idle(&batch)) usleep(100);
  printf("batch: %d commands submitted, %s\n", BATCH, suspended ? "suspended" : "not suspended");
  *(volatile gw_u64 *)go = 1;

  CHECK(XQueueWait(urgent.xq, of_urgent[URGENT - 1].handle));
  CHECK(XQueueWait(batch.xq, of_batch[BATCH - 1].handle));
  CHECK(hipEventElapsedTime(&apart, urgent.end, batch.end));
  printf("order of completion: %s\n", apart > 0 ? "urgent, batch" : "batch, urgent");

  const int right = is_right(&batch, BATCH) && is_right(&urgent, URGENT);
  printf("results: %s\n", right ? "each command ran once, in order" : "wrong");
  destroy_queue(&urgent);
  destroy_queue(&batch);
  CHECK(hipFree(go));
  return right ? 0 : 1;
}
