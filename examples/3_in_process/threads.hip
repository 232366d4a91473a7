/* A batch thread and an urgent one in one process, each with a stream of its own. The scheduler inside the process decides
 * between them. There is no server.
 *
 * usage: threads [URGENT_PRIORITY [BATCH_PRIORITY]] */
#include <future>
#include <thread>

#include "tasks.h"
#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

/* A stream with an XQueue in front of it. */
struct Queue {
  hipStream_t stream;
  HwQueueHandle hwq;
  XQueueHandle xq;

  explicit Queue(Priority priority) {
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK(HipQueueCreate(&hwq, stream));
    CHECK(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
    /* At most 16 commands in flight: a suspension takes effect after at most 16 of them. Without this a queue has no limit as
     * long as the scheduler knows of none that outranks it, and adapts to the length of its commands otherwise. */
    CHECK(XQueueSetLaunchConfig(xq, 16, 8));
    CHECK(XHintPriority(xq, priority));
  }
  ~Queue() {
    CHECK(XQueueDestroy(xq));
    CHECK(HwQueueDestroy(hwq));
    CHECK(hipStreamDestroy(stream));
  }
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;
};

int main(int argc, char **argv) {
  const Priority urgent_priority = argc > 1 ? atoi(argv[1]) : 10, batch_priority = argc > 2 ? atoi(argv[2]) : 1;
  say_lines_at_once();
  CHECK(XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));

  Queue urgent_queue(urgent_priority), batch_queue(batch_priority);
  Tasks urgent_tasks("urgent", urgent_queue.stream, 2, 40), batch_tasks("batch", batch_queue.stream, 2, 10);

  std::promise<void> batch_submitted;
  std::thread urgent([&] {
    batch_submitted.get_future().wait(); /* so that the batch thread comes first */
    urgent_tasks.submit();
    urgent_tasks.wait();
  });
  std::thread batch([&] {
    batch_tasks.submit();
    batch_submitted.set_value();
    batch_tasks.wait();
  });
  urgent.join();
  batch.join();
  return 0;
}
