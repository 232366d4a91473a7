/* Requests that are announced before they arrive: when each of them comes, xserver has taken the device from a batch program
 * already, and the request waits for no batch kernel.
 *
 * usage: arrival [announced|unannounced]
 *
 * The batch program is a child of this process, and keeps the device busy with kernels of 40 ms. A request is a kernel of
 * 1 ms. Each batch kernel writes its number to memory that both processes see: if that number is the same before and after
 * a request, no batch kernel was on the device when the request came. */
#include <hip/hip_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tasks.h"
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

static const gw_u64 MS = 1000000, BATCH_KERNEL = 40 * MS, REQUEST_KERNEL = 1 * MS;
static const int REQUESTS = 10;
/* How long a request is announced ahead. xserver clears the device some time before (its parameter lead-us). A request that
 * is made three and a half batch kernels after the end of one comes in the middle of another, unless that is kept back. */
static const std::chrono::milliseconds AHEAD(140);

/* A stream with an XQueue of a class, which xserver schedules. */
struct Queue {
  hipStream_t stream;
  HwQueueHandle hwq;
  XQueueHandle xq;

  explicit Queue(XQueueClass cls) {
    CHECK(XHintSetScheduler(kSchedulerGlobal, kPolicyLatencyCriticalBestEffort));
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK(HipQueueCreate(&hwq, stream));
    CHECK(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
    CHECK(XHintClass(xq, cls));
  }
  ~Queue() {
    CHECK(XQueueDestroy(xq));
    CHECK(HwQueueDestroy(hwq));
    CHECK(hipStreamDestroy(stream));
  }
};

/* The batch program: keeps a few kernels ahead until the pipe ends. */
static int batch(gw_u64 *ended, int pipe_end) {
  enum { KEPT_AHEAD = 4 };
  Queue queue(kQueueClassBestEffort);
  const unsigned blocks = blocks_that_fill_the_device();
  gw_u64 *word; /* where the device sees it */
  CHECK(hipHostRegister(ended, sizeof *ended, hipHostRegisterMapped));
  CHECK(hipHostGetDevicePointer((void **)&word, ended, 0));
  hipEvent_t ends[KEPT_AHEAD];
  for (hipEvent_t &end : ends) CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
  struct pollfd input = {pipe_end, POLLIN, 0};
  for (gw_u64 number = 1; poll(&input, 1, 0) == 0; number++) {
    hipEvent_t end = ends[number % KEPT_AHEAD];
    if (number > KEPT_AHEAD) CHECK(hipEventSynchronize(end)); /* of the kernel that had this event last */
    gw_u64 nanoseconds = BATCH_KERNEL;
    gw_u32 rounds = 1;
    void *arguments[] = {&word, &number, &nanoseconds, &rounds};
    CHECK(hipLaunchKernel((const void *)busy_store, dim3(blocks), dim3(BLOCK_THREADS), arguments, 0, queue.stream));
    CHECK(hipEventRecord(end, queue.stream));
  }
  CHECK(hipStreamSynchronize(queue.stream));
  for (hipEvent_t end : ends) CHECK(hipEventDestroy(end));
  CHECK(hipHostUnregister(ended));
  return 0;
}

/* Waits until a batch kernel ends: the device works for the batch program then. */
static void wait_for_batch(const volatile gw_u64 *ended, pid_t child) {
  for (const gw_u64 last = *ended; *ended == last; usleep(1000)) {
    if (waitpid(child, nullptr, WNOHANG) != 0) {
      fprintf(stderr, "the batch program has ended\n");
      exit(1);
    }
  }
}

/* Makes all requests. The number of those for which the device was clear. */
static int requests(bool announced, const volatile gw_u64 *ended, pid_t child) {
  Queue queue(kQueueClassLatencyCritical);
  const unsigned blocks = blocks_that_fill_the_device();
  int clear = 0;
  for (int request = 0; request <= REQUESTS; request++) {
    wait_for_batch(ended, child);
    const auto arrival = std::chrono::steady_clock::now() + AHEAD;
    if (announced) CHECK(XHintArrival(queue.xq, std::chrono::microseconds(AHEAD).count()));
    std::this_thread::sleep_until(arrival);

    const gw_u64 before = *ended;
    gw_u64 nanoseconds = REQUEST_KERNEL;
    gw_u32 rounds = 1;
    void *arguments[] = {&nanoseconds, &rounds};
    CHECK(hipLaunchKernel((const void *)busy, dim3(blocks), dim3(BLOCK_THREADS), arguments, 0, queue.stream));
    CHECK(hipStreamSynchronize(queue.stream));
    /* The first request also brings the code to the device, and does not count. */
    if (request > 0 && *ended == before) clear++;
  }
  return clear;
}

int main(int argc, char **argv) {
  const bool announced = argc < 2 || strcmp(argv[1], "announced") == 0;
  if (argc > 2 || (!announced && strcmp(argv[1], "unannounced") != 0)) {
    fprintf(stderr, "usage: arrival [announced|unannounced]\n");
    return 2;
  }
  void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (page == MAP_FAILED || pipe(ends) != 0) {
    perror("arrival");
    return 1;
  }
  gw_u64 *ended = (gw_u64 *)page;
  const pid_t child = fork(); /* before either process uses HIP */
  if (child == 0) {
    close(ends[1]);
    return batch(ended, ends[0]);
  }
  close(ends[0]);

  const int clear = requests(announced, ended, child);
  close(ends[1]); /* ends the batch program */
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "the batch program has failed\n");
    return 1;
  }
  /* A busy machine may be late for one or the other, which is no matter of announcing. */
  const char *many = clear * 3 >= REQUESTS * 2 ? "most" : clear * 3 <= REQUESTS ? "few" : "some";
  printf("%s requests: %s found the device clear\n", announced ? "announced" : "unannounced", many);
  return 0;
}
