/* The scheduler of the C++ header as an application uses it: include/giveway/scheduler.hpp. Linked against libshimhip.so,
 * nothing in the environment. With --off the library is switched off (XSCHED_DISABLE=1). */
#include "throws.h"

#include <atomic>
#include <functional>

using giveway::AtEnd;
using giveway::Kind;
using giveway::Options;
using giveway::Queue;
using giveway::Scheduler;
using giveway::Task;

static Task critical() { return Task{Kind::latency_critical}; }
static Task named(const char *name) {
  Task task;
  task.name = name;
  return task;
}

static void results() {
  Scheduler scheduler;
  REQUIRE(scheduler.scheduled(), "the library is there");
  gw_u64 *device = device_words(Words(N, 3));
  Words model(N, 3);
  cpu_mix(model, model, 8);
  std::atomic<int> called(0);
  int number = 5;
  /* The copy in the task completes before the future is ready, though the function does not wait for it. */
  gw_u64 *host;
  CHECK(hipHostMalloc((void **)&host, N * 8, 0));
  const std::thread::id seen = scheduler.submit(critical(), [&](hipStream_t stream) {
    launch_busy(stream, 20 * MS);
    launch_mix(stream, device, device, N, 8);
    CHECK(hipMemcpyAsync(host, device, N * 8, hipMemcpyDeviceToHost, stream));
    return std::this_thread::get_id();
  }).get();
  SAME(host, model.data(), N * 8, "a task is complete when its work is");
  REQUIRE(seen != std::this_thread::get_id(), "on a worker");
  scheduler.submit({}, [&] { called++; }).get();
  auto gives = [held = std::make_unique<int>(6)](hipStream_t) mutable { return std::move(held); };
  const std::unique_ptr<int> unique = scheduler.submit({}, std::move(gives)).get();
  const int copy = scheduler.submit({}, [&]() -> int & { return number; }).get();
  const std::function<std::string(hipStream_t)> kept = [](hipStream_t) { return std::string("text"); };
  REQUIRE(*unique == 6 && copy == 5 && called == 1 && scheduler.submit({}, kept).get() == "text", "results");
  auto alive = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = alive;
  auto last = scheduler.submit({}, [held = std::move(alive)] { return *held; });
  last.wait();
  REQUIRE(watched.expired(), "the function ends before the future is ready");
  REQUIRE(last.get() == 1, "result");
  hipStream_t other;
  hipStream_t own = scheduler.submit(critical(), [&](hipStream_t stream) {
    other = scheduler.submit(critical(), [](hipStream_t inner) { return inner; }).get();
    return stream;
  }).get();
  REQUIRE(own != other && own != nullptr, "each worker has a stream of its own");
  CHECK(hipFree(device));
  CHECK(hipHostFree(host));
  printf("results: when the work has completed\n");
}

/* Whatever a task does, its future says it, and the next task finds a worker in order. */
static void failures() {
  Options options;
  options.workers = 1;
  Scheduler scheduler(options);
  gw_u64 *device = device_words(Words(N, 0));
  Words model(N, 0);
  const auto works = [&](gw_u64 number) {
    scheduler.submit(named("good"), [&](hipStream_t stream) { launch_mix(stream, device, device, N, number); }).get();
    cpu_mix(model, model, number);
    SAME_WORDS(device, model, "the next task");
  };
  const auto says = [&](std::future<void> future, XResult want) {
    try {
      future.get();
      FAIL("no Error");
    } catch (const Error &error) {
      REQUIRE(error.result() == want, "%s", error.what());
      printf("failures: %s\n", error.what());
    }
    works((gw_u64)want);
  };
  auto thrown = scheduler.submit({}, [&](hipStream_t stream) {
    launch_busy(stream, 10 * MS);
    launch_mix(stream, device, device, N, 77);
    throw std::out_of_range("mine");
  });
  cpu_mix(model, model, 77);
  try {
    thrown.get();
    FAIL("nothing was thrown");
  } catch (const std::out_of_range &error) {
    SAME_WORDS(device, model, "the work before the exception has completed");
  }
  auto other = scheduler.submit({}, [] { throw 7; });
  try {
    other.get();
    FAIL("nothing was thrown");
  } catch (int number) {
    REQUIRE(number == 7, "any type");
  }
  works(78);
  says(scheduler.submit(named("launch"), [](hipStream_t stream) {
    gw_u64 duration = 0;
    unsigned rounds = 1;
    void *arguments[] = {&duration, &rounds};
    (void)hipLaunchKernel((const void *)busy, dim3(1), dim3(1 << 20), arguments, 0, stream);
  }), kXSchedErrorHardware);
  says(scheduler.submit({}, [](hipStream_t stream) {
    giveway::check(hipMemsetAsync(nullptr, 0, 8, stream), "hipMemsetAsync");
  }), kXSchedErrorHardware);
  says(scheduler.submit(named("capture"), [](hipStream_t stream) {
    CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
    launch_busy(stream, MS);
  }), kXSchedErrorNotAllowed);
  scheduler.submit({}, [](hipStream_t stream) { EXPECT(hipStreamQuery(stream), hipSuccess); }).get();
  /* A task that has dealt with its error is complete. */
  scheduler.submit({}, [](hipStream_t) {
    EXPECT(hipFree((void *)8), hipErrorInvalidValue);
    (void)hipGetLastError();
  }).get();
  scheduler.submit({}, [](hipStream_t stream) {
    Queue(stream).close(); /* which has taken it, and leaves it */
    giveway::check(XQueueDestroy(Queue(stream).handle()), "XQueueDestroy");
  }).get();
  works(79);
  says(scheduler.submit(named("wait"), [&] { scheduler.wait(); }), kXSchedErrorNotAllowed);
  /* The reason is HIP's, and not always the same word. */
  auto gone = scheduler.submit({}, [](hipStream_t stream) { CHECK(hipStreamDestroy(stream)); });
  THROWS(gone.get(), kXSchedErrorHardware);
  works(80);
  REQUIRE(scheduler.submit({}, [] { return Scheduler().submit({}, [] { return 3; }).get(); }).get() == 3, "one inside");
  CHECK(hipFree(device));
  const giveway::KindMetrics metrics = scheduler.metrics().best_effort;
  REQUIRE(metrics.submitted == metrics.completed + metrics.failed && metrics.failed == 7, "%zu failed", (size_t)metrics.failed);

  for (unsigned workers : {0u, 257u}) {
    options.workers = workers;
    THROWS(Scheduler(options), kXSchedErrorInvalidValue);
  }
  options.workers = 1;
  for (Priority priority : {PRIORITY_NO_EXECUTE, PRIORITY_MAX + 1}) {
    Options wrong = options;
    wrong.best_effort.priority = priority;
    THROWS(Scheduler(wrong), kXSchedErrorInvalidValue);
    Task task;
    task.priority = priority;
    THROWS(scheduler.submit(task, [] {}), kXSchedErrorInvalidValue);
  }
  options.latency_critical.slo = -1ms;
  THROWS(Scheduler(options), kXSchedErrorInvalidValue);
  options.latency_critical.slo.reset();
  for (int policy : {0, 12, 99}) {
    options.policy = (XPolicyType)policy;
    THROWS(Scheduler(options), kXSchedErrorInvalidValue);
  }
  Task task;
  task.slo = -1ns;
  THROWS(scheduler.submit(task, [] {}), kXSchedErrorInvalidValue);
  task.slo.reset();
  task.kind = (Kind)2;
  THROWS(scheduler.submit(task, [] {}), kXSchedErrorInvalidValue);
}

/* One worker, which is kept busy: the tasks behind it begin in their order. */
static void order_of_beginning() {
  Options options;
  options.workers = 1;
  options.best_effort.priority = 2;
  Scheduler scheduler(options);
  Signal begun, held;
  std::string order;
  scheduler.submit({}, [&] {
    begun.set();
    held.wait();
  });
  begun.wait();
  typedef std::optional<giveway::Duration> Slo;
  const auto add = [&](Kind kind, char letter, std::optional<Priority> priority = {}, Slo slo = {}) {
    Task task;
    task.kind = kind;
    task.priority = priority;
    task.slo = slo;
    scheduler.submit(task, [&order, letter] { order += letter; });
  };
  add(Kind::best_effort, 'f');
  add(Kind::best_effort, 'g');
  add(Kind::best_effort, 'e', 3);
  add(Kind::best_effort, 'h', 1);
  add(Kind::latency_critical, 'd', PRIORITY_MIN);
  add(Kind::latency_critical, 'c');
  add(Kind::latency_critical, 'b', {}, 2h);
  add(Kind::latency_critical, 'a', {}, 1h);
  add(Kind::best_effort, 'i', 1, giveway::Duration::max());
  const giveway::Metrics before = scheduler.metrics();
  REQUIRE(before.best_effort.running == 1 && before.best_effort.waiting == 5 && before.latency_critical.waiting == 4,
          "what waits");
  held.set();
  scheduler.wait();
  printf("order: %s\n", order.c_str());
  REQUIRE(order == "abcdefghi", "%s", order.c_str());
}

/* Best-effort work fills the device, and the last of it cannot end before the critical task has: the device waits for a value. */
static void critical_before_best_effort() {
  Options options;
  options.policy = kPolicyHighestPriorityFirst;
  Scheduler scheduler(options);
  Gate gate;
  Signal holding;
  std::vector<std::future<void>> batch;
  batch.push_back(scheduler.submit({}, [&](hipStream_t stream) {
    gate.close(stream);
    launch_busy(stream, MS);
    holding.set();
  }));
  for (int i = 0; i < 20; i++) batch.push_back(scheduler.submit({}, [](hipStream_t stream) { launch_busy(stream, MS); }));
  holding.wait();
  std::vector<std::future<Priority>> urgent;
  for (int i = 0; i < 3; i++) {
    Task task = critical();
    task.priority = 100 + i;
    task.slo = i == 0 ? giveway::Duration(0) : giveway::Duration(24h);
    urgent.push_back(scheduler.submit(task, [](hipStream_t stream) {
      launch_busy(stream, MS);
      return Queue(stream).stats().priority;
    }));
  }
  for (int i = 0; i < 3; i++) REQUIRE(urgent[i].get() == 100 + i, "the queue has the task's priority");
  const giveway::Metrics then = scheduler.metrics();
  REQUIRE(then.latency_critical.completed == 3 && then.best_effort.completed == 0, "counted when the futures are ready");
  printf("urgent: %d of 3 complete, and %d of 21 best-effort tasks\n", (int)then.latency_critical.completed,
         (int)then.best_effort.completed);
  gate.open();
  for (auto &task : batch) task.get();
  scheduler.wait();
  const giveway::Metrics all = scheduler.metrics();
  for (const giveway::KindMetrics &kind : {all.latency_critical, all.best_effort}) {
    const uint64_t others = kind.failed + kind.cancelled + kind.waiting + kind.running;
    REQUIRE(kind.submitted == kind.completed && others == 0, "all complete");
    REQUIRE(0ns < kind.p50 && kind.p50 <= kind.p90 && kind.p90 <= kind.p99 && kind.p99 <= kind.max, "percentiles rise");
  }
  REQUIRE(all.latency_critical.missed_slo == 1 && all.best_effort.missed_slo == 0, "0 ns is missed, 24 h are not");
  printf("urgent: then %d of 21\n", (int)all.best_effort.completed);
  giveway::check(XHintSetScheduler(kSchedulerAppManaged, kPolicyUnknown), "XHintSetScheduler");
}

static void ends() {
  std::vector<std::future<int>> futures;
  std::atomic<int> ran(0);
  {
    Scheduler scheduler;
    for (int i = 0; i < 50; i++) {
      futures.push_back(scheduler.submit({}, [&, i](hipStream_t stream) {
        launch_busy(stream, 1000);
        ran++;
        return i;
      }));
    }
  }
  for (int i = 0; i < 50; i++) REQUIRE(futures[i].get() == i, "finished");
  REQUIRE(ran == 50, "each once");

  Options options;
  options.workers = 1;
  options.at_end = AtEnd::cancel;
  Signal begun, filled;
  std::optional<Scheduler> scheduler(std::in_place, options);
  std::vector<std::future<void>> cancelled;
  Scheduler &still = *scheduler;
  auto running = still.submit({}, [&] {
    begun.set();
    filled.wait();
    cancelled[0].wait(); /* the Scheduler is ending */
    THROWS(still.submit({}, [] {}), kXSchedErrorNotAllowed);
    REQUIRE(still.metrics().best_effort.cancelled == 10, "counted");
    return 1;
  });
  for (int i = 0; i < 10; i++) cancelled.push_back(still.submit(named("late"), [&] { ran++; }));
  filled.set();
  begun.wait();
  scheduler.reset();
  REQUIRE(running.get() == 1 && ran == 50, "what runs goes on, and nothing else begins");
  for (auto &future : cancelled) {
    try {
      future.get();
      FAIL("no Error");
    } catch (const Error &error) {
      REQUIRE(error.result() == kXSchedErrorNotAllowed, "%s", error.what());
      if (&future == &cancelled[0]) printf("ends: %s\n", error.what());
    }
  }

  /* A task ends its own Scheduler; the others still run. */
  auto own = std::make_shared<Scheduler>();
  Signal go;
  auto end = own->submit({}, [&] {
    go.wait();
    own.reset();
    return 2;
  });
  std::vector<std::future<int>> behind;
  for (int i = 0; i < 4; i++) behind.push_back(own->submit(i % 2 ? critical() : Task(), [] { return 3; }));
  go.set();
  REQUIRE(end.get() == 2, "a task may do so");
  for (auto &future : behind) REQUIRE(future.get() == 3, "finished");
  printf("ends: finished, or cancelled\n");
}

/* Many threads submit; each result goes where it belongs. */
static void threads_together() {
  Options options;
  options.workers = 3;
  Scheduler scheduler(options);
  std::vector<std::thread> threads;
  std::atomic<int> right(0);
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&, i] {
      std::vector<std::future<int>> futures;
      for (int j = 0; j < 100; j++) {
        Task task;
        task.kind = j % 3 ? Kind::best_effort : Kind::latency_critical;
        futures.push_back(scheduler.submit(task, [i, j](hipStream_t stream) {
          if (j % 10 == 0) launch_busy(stream, 1000);
          if (j % 7 == 0) throw i * 1000 + j;
          return i * 1000 + j;
        }));
        (void)scheduler.metrics();
      }
      for (int j = 0; j < 100; j++) {
        int got;
        try {
          got = futures[(size_t)j].get();
          REQUIRE(j % 7 != 0, "an exception was lost");
        } catch (int number) {
          got = number;
        }
        right += got == i * 1000 + j;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  const giveway::Metrics all = scheduler.metrics();
  REQUIRE(right == 400 && all.latency_critical.submitted == 136 && all.best_effort.submitted == 264, "each once");
  REQUIRE(all.latency_critical.failed + all.best_effort.failed == 60, "15 of 100 of each thread");
  printf("threads: %d results where they belong\n", right.load());
}

static int switched_off() {
  Options options;
  options.policy = kPolicyHighestPriorityFirst;
  Scheduler scheduler(options);
  REQUIRE(!scheduler.scheduled(), "nothing schedules");
  Words model(N, 1);
  gw_u64 *device = device_words(model);
  for (gw_u64 i = 0; i < 10; i++) {
    scheduler.submit(i % 2 ? critical() : Task(), [&](hipStream_t stream) { launch_mix(stream, device, device, N, i); }).get();
    cpu_mix(model, model, i);
  }
  SAME_WORDS(device, model, "tasks run");
  THROWS(scheduler.submit({}, [](hipStream_t) { throw Error("mine", kXSchedErrorBadResponse); }).get(), kXSchedErrorBadResponse);
  return passed();
}

int main(int argc, char **argv) {
  if (has_flag(argc, argv, "--off")) return switched_off();
  results();
  failures();
  order_of_beginning();
  critical_before_best_effort();
  ends();
  threads_together();
  return passed();
}
