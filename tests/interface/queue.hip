/* The queues and parts of the C++ header as an application uses them: include/giveway/queue.hpp. Linked against libshimhip.so,
 * nothing in the environment. With --auto every stream has an XQueue already (XSCHED_AUTO_XQUEUE=ON), and with --off the
 * library is switched off (XSCHED_DISABLE=1). */
#include "throws.h"

#include <set>

using giveway::HintScope;
using giveway::Hints;
using giveway::PriorityScope;
using giveway::Queue;

static void errors() {
  std::set<std::string> texts;
  for (XResult result : {kXSchedSuccess, kXSchedErrorHardware, kXSchedErrorInvalidValue, kXSchedErrorNotFound,
                         kXSchedErrorNotAllowed, kXSchedErrorNotSupported, kXSchedErrorBadResponse, kXSchedErrorUnknown}) {
    texts.insert(giveway::text(result));
  }
  REQUIRE(texts.size() == 8, "each result has a text of its own");
  REQUIRE(std::string(giveway::text((XResult)77)) == giveway::text(kXSchedErrorUnknown), "numbers without a name have one text");
  giveway::check(kXSchedSuccess, "nothing");
  giveway::check(hipSuccess, "nothing");
  try {
    giveway::check(hipErrorInvalidValue, "hipSomething");
    FAIL("no Error");
  } catch (const std::runtime_error &error) {
    const Error *ours = dynamic_cast<const Error *>(&error);
    REQUIRE(ours && ours->result() == kXSchedErrorHardware && ours->hip() == hipErrorInvalidValue, "%s", error.what());
    printf("errors: %s\n", error.what());
  }
  try {
    giveway::check(kXSchedErrorNotFound, "XSomething");
    FAIL("no Error");
  } catch (const Error &error) {
    REQUIRE(error.hip() == hipSuccess, "no call of HIP");
    printf("errors: %s\n", error.what());
  }
}

static void expect_empty(Queue &queue) {
  REQUIRE(queue.handle() == 0 && queue.stream() == nullptr && !queue.made(), "an empty object names nothing");
  THROWS(queue.priority(1), kXSchedErrorNotFound);
  THROWS(queue.slo(1ms), kXSchedErrorNotFound);
  THROWS(queue.cls(kQueueClassBestEffort), kXSchedErrorNotFound);
  THROWS(queue.arrival(1ms), kXSchedErrorNotFound);
  THROWS(queue.launch_config(2, 1), kXSchedErrorNotFound);
  THROWS(queue.level(kPreemptLevelBlock), kXSchedErrorNotFound);
  THROWS(queue.suspend(), kXSchedErrorNotFound);
  THROWS(queue.resume(), kXSchedErrorNotFound);
  THROWS(queue.wait(), kXSchedErrorNotFound);
  THROWS(queue.stats(), kXSchedErrorNotFound);
  THROWS(queue.close(), kXSchedErrorNotFound);
  THROWS(HintScope(queue, Hints()), kXSchedErrorNotFound);
}

static bool is_known(XQueueHandle xq) {
  const std::vector<XQueueHandle> all = giveway::queues();
  return std::count(all.begin(), all.end(), xq) == 1;
}

/* Objects and what they name: made by them or not, moved, closed, and gone before them. */
static void objects(bool automatic) {
  hipStream_t stream = new_stream();
  XQueueHandle xq = 0;
  {
    Queue first(stream);
    xq = first.handle();
    REQUIRE(xq != 0 && first.made() == !automatic && first.stream() == stream && is_known(xq), "it has an XQueue");
    Queue same(stream);
    REQUIRE(same.handle() == xq && !same.made(), "the second object takes the one that exists");
    Queue moved(std::move(first));
    REQUIRE(moved.handle() == xq && moved.made() == !automatic, "moved");
    expect_empty(first);
    first = std::move(moved);
    REQUIRE(first.handle() == xq, "moved back");
    Queue &self = first;
    first = std::move(self);
    REQUIRE(first.handle() == xq && first.made() == !automatic, "moved to itself");
    same.close();
    expect_empty(same);
    (void)first.stats();
  }
  REQUIRE(is_known(xq) == automatic, "the object ends what it has made, and nothing else");

  if (!automatic) {
    HwQueueHandle hwq = 0;
    giveway::check(HipQueueCreate(&hwq, stream), "HipQueueCreate");
    giveway::check(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone), "XQueueCreate");
    {
      Queue taken(stream);
      REQUIRE(taken.handle() == xq && !taken.made(), "an XQueue of the C interface is taken");
    }
    REQUIRE(is_known(xq), "and stays");
    giveway::check(XQueueDestroy(xq), "XQueueDestroy");
    Queue beneath(stream);
    giveway::check(XQueueDestroy(beneath.handle()), "XQueueDestroy");
    THROWS(beneath.stats(), kXSchedErrorNotFound);
    THROWS(beneath.close(), kXSchedErrorNotFound);
    expect_empty(beneath);
    Queue silent(stream);
    giveway::check(XQueueDestroy(silent.handle()), "XQueueDestroy");
    Queue levels(stream, kPreemptLevelInterrupt);
    REQUIRE(levels.stats().level == kPreemptLevelInterrupt, "the level that was asked for");
    levels.level(kPreemptLevelBlock);
    REQUIRE(levels.stats().level == kPreemptLevelBlock, "and another one");
    THROWS(levels.level((XPreemptLevel)7), kXSchedErrorInvalidValue);
    hipStream_t other = new_stream();
    for (int level : {-1, 0, 4}) THROWS(Queue(other, (XPreemptLevel)level), kXSchedErrorInvalidValue);
    CHECK(hipStreamDestroy(other));
  }
  {
    Queue queue(stream);
    PriorityScope scope(queue, 5);
    CHECK(hipStreamDestroy(stream));
    THROWS(queue.wait(), kXSchedErrorNotFound);
    THROWS(queue.priority(1), kXSchedErrorNotFound);
    THROWS(PriorityScope(queue, 5), kXSchedErrorNotFound);
  }
  REQUIRE(!is_known(xq), "it went with its stream");
  THROWS(Queue((hipStream_t)0x1230), kXSchedErrorInvalidValue);
  {
    Queue of_null_stream(nullptr);
    of_null_stream.priority(3);
    REQUIRE(of_null_stream.stats().priority == 3, "the null stream has one as well");
    of_null_stream.priority(PRIORITY_DEFAULT);
  }
  printf("objects: as documented\n");
}

static void configuration() {
  hipStream_t stream = new_stream();
  Queue queue(stream);
  queue.priority(7).slo(5ms).cls(kQueueClassBestEffort).arrival(1s).launch_config(4, 2);
  XQueueStatistics stats = queue.stats();
  REQUIRE(stats.priority == 7 && stats.threshold == 4 && stats.batch_size == 2 && stats.running == 1, "as set");
  queue.launch_config(6);
  stats = queue.stats();
  REQUIRE(stats.threshold == 6 && stats.batch_size == 2, "0 keeps the batch size");
  queue.slo(0ns).slo(1ns).slo(giveway::Duration::max()).slo(std::nullopt).arrival(std::nullopt).cls(kQueueClassNone);
  const auto us = [](giveway::Duration time) { return giveway::detail::microseconds(time, "microseconds"); };
  REQUIRE(us(0ns) == 0 && us(1ns) == 1 && us(1500ns) == 2 && us(5ms) == 5000, "whole microseconds, rounded up");
  THROWS(queue.slo(-1ns), kXSchedErrorInvalidValue);
  THROWS(queue.arrival(-1ns), kXSchedErrorInvalidValue);
  THROWS(queue.cls((XQueueClass)9), kXSchedErrorInvalidValue);
  THROWS(queue.launch_config(0x80000000ll, 1), kXSchedErrorInvalidValue);
  queue.priority(1000);
  REQUIRE(queue.stats().priority == PRIORITY_MAX, "the nearest priority");

  Words model(N, 0);
  gw_u64 *device = device_words(model);
  queue.suspend();
  queue.suspend(kQueueSuspendFlagSyncHwQueue);
  for (gw_u64 i = 0; i < 5; i++) {
    launch_mix(stream, device, device, N, i);
    cpu_mix(model, model, i);
  }
  stats = queue.stats();
  REQUIRE(stats.running == 0 && stats.pending == 5 && stats.suspensions == 1 && stats.state == kQueueStateReady, "kept");
  queue.resume();
  queue.wait();
  SAME_WORDS(device, model, "what was kept");
  stats = queue.stats();
  REQUIRE(stats.running == 1 && stats.pending == 0 && stats.state == kQueueStateIdle, "all of it complete");
  queue.suspend();
  launch_mix(stream, device, device, N, 99);
  queue.resume(kQueueResumeFlagDropCommands);
  queue.wait();
  SAME_WORDS(device, model, "what was discarded never runs");
  CHECK(hipFree(device));
  CHECK(hipStreamDestroy(stream));
  printf("configuration: as set, and nothing lost\n");
}

static void until_priority(const Queue &queue, Priority want) {
  until([&] { return queue.stats().priority == want; });
}

static void parts() {
  hipStream_t stream = new_stream();
  Queue queue(stream);
  queue.priority(1);
  const auto in_force = [&] { return queue.stats().priority; };
  {
    PriorityScope urgent(queue, 20);
    REQUIRE(in_force() == 20, "in the part");
    queue.priority(2);
    REQUIRE(in_force() == 20, "the queue's own does not count in a part");
    {
      Hints hints;
      hints.cls = kQueueClassLatencyCritical;
      hints.deadline = 3ms;
      HintScope keeps(queue, hints);
      REQUIRE(in_force() == 20, "a part without a priority");
      PriorityScope less(queue.handle(), 10);
      REQUIRE(in_force() == 20, "the most urgent of all");
    }
    PriorityScope moved(std::move(urgent));
    THROWS(urgent.end(), kXSchedErrorNotFound);
    REQUIRE(in_force() == 20, "a part that moved goes on");
    PriorityScope other(queue, 30);
    REQUIRE(in_force() == 30, "two");
    other = std::move(moved);
    REQUIRE(in_force() == 20, "an assignment ends the part that was there");
    other.end();
    until_priority(queue, 2);
    THROWS(other.end(), kXSchedErrorNotFound);
  }
  REQUIRE(in_force() == 2, "after all parts");
  {
    PriorityScope least(queue, INT32_MIN);
    REQUIRE(in_force() == PRIORITY_MIN, "a priority, and not XHINT_KEEP");
  }
  THROWS(PriorityScope((XQueueHandle)0, 1), kXSchedErrorNotFound);
  THROWS(PriorityScope(queue.handle() + 1000, 1), kXSchedErrorNotFound);
  THROWS(PriorityScope(XQUEUE_OF_NEW_STREAMS, 1), kXSchedErrorNotFound);
  Hints wrong;
  wrong.deadline = -1ms;
  THROWS(HintScope(queue, wrong), kXSchedErrorInvalidValue);
  wrong.deadline.reset();
  wrong.cls = (XQueueClass)5;
  THROWS(HintScope(queue, wrong), kXSchedErrorInvalidValue);

  /* The part covers the work that was submitted in it, and not what came later. */
  queue.suspend();
  {
    PriorityScope urgent(queue, 40);
    launch_busy(stream, MS / 10);
  }
  launch_busy(stream, MS / 10);
  REQUIRE(in_force() == 40, "its work has not completed");
  queue.resume();
  queue.wait();
  until_priority(queue, 2);

  /* Parts of two threads that overlap, one of which ends on the other thread. */
  Signal begun, ended;
  std::optional<PriorityScope> first(std::in_place, queue, 50);
  std::thread other([&] {
    PriorityScope second(queue, 60);
    begun.set();
    ended.wait();
    REQUIRE(in_force() == 60, "the other thread's part still counts");
    first.reset();
  });
  begun.wait();
  REQUIRE(in_force() == 60, "the most urgent part of all threads");
  PriorityScope third(queue, 55);
  ended.set();
  other.join();
  until_priority(queue, 55);
  third.end();
  until_priority(queue, 2);

  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; round++) {
        PriorityScope scope(queue, 100 + i);
        launch_busy(stream, 1000);
        REQUIRE(in_force() >= 100 + i, "at least this thread's own");
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  queue.wait();
  until_priority(queue, 2);
  REQUIRE(in_force() == 2, "no part is left");
  CHECK(hipStreamDestroy(stream));
  printf("parts: the most urgent counts, until its work has completed\n");
}

static void defaults_of_threads() {
  const auto priority_of_new = [] {
    hipStream_t stream = new_stream();
    const Priority priority = Queue(stream).stats().priority;
    CHECK(hipStreamDestroy(stream));
    return priority;
  };
  Hints hints;
  hints.priority = 9;
  hints.cls = kQueueClassLatencyCritical;
  hints.deadline = 4ms;
  std::thread([&] {
    REQUIRE(priority_of_new() == PRIORITY_DEFAULT, "before");
    giveway::thread_defaults(hints);
    REQUIRE(priority_of_new() == 9, "as this thread has set it");
    giveway::thread_defaults(Hints());
    REQUIRE(priority_of_new() == 9, "not set: it stays");
    hints.priority = PRIORITY_DEFAULT;
    hints.deadline = -1ms;
    THROWS(giveway::thread_defaults(hints), kXSchedErrorInvalidValue);
    REQUIRE(priority_of_new() == 9, "nothing is set if a hint is wrong");
  }).join();
  REQUIRE(priority_of_new() == PRIORITY_DEFAULT, "another thread has its own");
  printf("defaults: of one thread\n");
}

static int switched_off() {
  THROWS(Queue(nullptr), kXSchedErrorNotSupported);
  THROWS(giveway::queues(), kXSchedErrorNotSupported);
  THROWS(giveway::thread_defaults(Hints()), kXSchedErrorNotSupported);
  THROWS(PriorityScope((XQueueHandle)1, 1), kXSchedErrorNotSupported);
  return passed();
}

int main(int argc, char **argv) {
  if (has_flag(argc, argv, "--off")) return switched_off();
  errors();
  objects(has_flag(argc, argv, "--auto"));
  configuration();
  parts();
  defaults_of_threads();
  return passed();
}
