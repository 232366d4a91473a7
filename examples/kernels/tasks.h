/* What the examples share: tasks of known length that fill the device, and who has finished which one. */
#ifndef GIVEWAY_EXAMPLES_TASKS_H
#define GIVEWAY_EXAMPLES_TASKS_H

#include <hip/hip_runtime.h>

#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "giveway_kernels.h" /* busy: a kernel that takes a given time */

/* Every function of HIP and of XSched's interface can fail; 0 is success for both. */
#define CHECK(call)                                                           \
  do {                                                                        \
    int result_ = (int)(call);                                                \
    if (result_ != 0) {                                                       \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

enum { BLOCK_THREADS = 256, KERNEL_MS = 5, STEP_MS = 50 };

/* As many work-groups as fit on the device at once. Kernels of two streams or programs then take turns. */
static inline unsigned blocks_that_fill_the_device() {
  int device;
  hipDeviceProp_t properties;
  CHECK(hipGetDevice(&device));
  CHECK(hipGetDeviceProperties(&properties, device));
  return (unsigned)(properties.multiProcessorCount * (properties.maxThreadsPerMultiProcessor / BLOCK_THREADS));
}

/* A line of output is written at once, so that the lines of several programs have the order of what they report. */
static inline void say_lines_at_once() { setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); }

/* Tasks of one name on one stream. A task takes so many steps of STEP_MS if it has the device to itself. */
class Tasks {
 public:
  Tasks(const char *name, hipStream_t stream, int count, int steps)
      : name_(name), stream_(stream), count_(count), steps_(steps), ends_((size_t)count) {
    for (hipEvent_t &end : ends_) CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
    blocks_ = blocks_that_fill_the_device();
    launch_kernel(1); /* the code is on the device now, and the first task is as long as the others */
    CHECK(hipStreamSynchronize(stream_));
  }
  ~Tasks() {
    for (hipEvent_t end : ends_) CHECK(hipEventDestroy(end));
  }
  Tasks(const Tasks &) = delete;
  Tasks &operator=(const Tasks &) = delete;

  /* Submits all tasks, and waits for none. */
  void submit() {
    for (hipEvent_t end : ends_) {
      for (int kernel = 0; kernel < steps_ * STEP_MS / KERNEL_MS; kernel++) launch_kernel(KERNEL_MS * 1000000ull);
      CHECK(hipEventRecord(end, stream_));
    }
    printf("%s: %d tasks submitted\n", name_, count_);
  }

  /* Waits for each task, and says when it is done. */
  void wait() {
    for (int task = 0; task < count_; task++) {
      CHECK(hipEventSynchronize(ends_[task]));
      printf("%s: task %d of %d done\n", name_, task + 1, count_);
    }
  }

 private:
  void launch_kernel(gw_u64 nanoseconds) {
    gw_u32 rounds = 1;
    void *arguments[] = {&nanoseconds, &rounds};
    CHECK(hipLaunchKernel((const void *)busy, dim3(blocks_), dim3(BLOCK_THREADS), arguments, 0, stream_));
  }

  const char *name_;
  hipStream_t stream_;
  int count_, steps_;
  unsigned blocks_;
  std::vector<hipEvent_t> ends_;
};

#endif
