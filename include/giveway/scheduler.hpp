/* A scheduler for tasks of one program: giveway::Scheduler. Part of giveway. It needs giveway/queue.hpp, which says for which
 * compilers, how errors are reported, and what units times have. */
#ifndef GIVEWAY_SCHEDULER_HPP
#define GIVEWAY_SCHEDULER_HPP

#include <array>
#include <condition_variable>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <tuple>
#include <type_traits>

#include "giveway/queue.hpp"

namespace giveway {

enum class Kind { latency_critical = 0, best_effort = 1 };

/** What a Scheduler knows of a task. */
struct Task {
  Kind kind = Kind::best_effort;
  /** PRIORITY_MIN to PRIORITY_MAX; not set: the default of its kind. */
  std::optional<Priority> priority{};
  /** The longest time from its submission to its completion; not set: the default of its kind, which may be none. A task
   * that takes longer is not stopped, but counted. */
  std::optional<Duration> slo{};
  /** For the texts of errors. */
  std::string name{};
};

/** What counts for tasks of a kind that say nothing themselves. */
struct TaskDefaults {
  Priority priority = PRIORITY_DEFAULT;
  std::optional<Duration> slo{};
};

/** What becomes of tasks that have not begun when their Scheduler ends. */
enum class AtEnd {
  /** They are run. */
  finish,
  /** Their futures get an Error with kXSchedErrorNotAllowed. */
  cancel
};

struct Options {
  /** Threads, each with a stream, so that as many tasks are on the device at once; 1 to 256. */
  unsigned workers = 2;
  /** How many of them take latency-critical tasks only, so that such a task need not wait for the end of a best-effort one.
   * At most workers - 1 count. */
  unsigned reserved = 1;
  /** The policy inside this process, which takes the place of the scheduler that it has (XHintSetScheduler) and stays when the
   * Scheduler has ended; not set: nothing changes, for example because xserver decides. */
  std::optional<XPolicyType> policy{};
  TaskDefaults latency_critical{10, {}};
  TaskDefaults best_effort{};
  AtEnd at_end = AtEnd::finish;
};

/** The tasks of a kind. submitted is the sum of completed, failed, cancelled, waiting and running. */
struct KindMetrics {
  uint64_t submitted = 0, completed = 0, failed = 0, cancelled = 0, waiting = 0, running = 0;
  /** Completed tasks that took longer than their slo. */
  uint64_t missed_slo = 0;
  /** Times from submission to completion of the last 4096 completed tasks; 0 if there are none. */
  Duration p50{}, p90{}, p99{}, max{};
};

struct Metrics {
  KindMetrics latency_critical, best_effort;
};

namespace detail {

using Clock = std::chrono::steady_clock;

struct Job {
  Task task;
  Clock::time_point submitted{}, due = Clock::time_point::max();
  uint64_t number = 0;
  std::exception_ptr failure;
  virtual ~Job() = default;
  /* Calls the function. Keeps what it returns or throws. */
  virtual void launch(hipStream_t stream) noexcept = 0;
  /* Destroys the function, and gives what was kept to the future. */
  virtual void deliver() noexcept = 0;
  Error error(const char *what, hipError_t code) const { return Error(title() + what, code); }
  Error error(const char *what, XResult code) const { return Error(title() + what, code); }
  /* Which job begins first: the smallest. */
  auto order() const { return std::make_tuple(task.kind, -int64_t{task.priority.value_or(0)}, due, number); }
  std::string title() const { return task.name.empty() ? "task: " : "task " + task.name + ": "; }
};

template <typename F>
decltype(auto) call(F &f, hipStream_t stream) {
  static_assert(std::is_invocable_v<F &, hipStream_t> || std::is_invocable_v<F &>, "f takes a hipStream_t, or nothing");
  if constexpr (std::is_invocable_v<F &, hipStream_t>) {
    return f(stream);
  } else {
    return f();
  }
}
template <typename F>
using ResultOf = std::decay_t<decltype(call(std::declval<std::decay_t<F> &>(), hipStream_t()))>;

template <typename F, typename R>
struct JobOf final : Job {
  static constexpr bool returns = !std::is_void_v<R>;
  std::optional<F> f;
  std::promise<R> promise;
  std::optional<std::conditional_t<returns, R, char>> value;
  template <typename G>
  explicit JobOf(G &&g) : f(std::in_place, std::forward<G>(g)) {}
  void launch(hipStream_t stream) noexcept override {
    try {
      if constexpr (returns) {
        value.emplace(call(*f, stream));
      } else {
        call(*f, stream);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
  void deliver() noexcept override {
    f.reset(); /* what it refers to may end when the future is ready */
    try {
      if (failure) return promise.set_exception(failure);
      if constexpr (returns) {
        promise.set_value(std::move(*value));
      } else {
        promise.set_value();
      }
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }
};

/* The stream of a worker and its XQueue. Without an XQueue if the library is switched off: tasks run unscheduled then. */
class Lane {
 public:
  explicit Lane(int device) : device_(device) { open(); }
  ~Lane() { close(); }
  Lane(const Lane &) = delete;
  Lane &operator=(const Lane &) = delete;
  bool scheduled() const { return queue_.has_value(); }

  /* Runs a job until its work has completed. */
  void run(Job &job) noexcept {
    try {
      check(hipSetDevice(device_), "hipSetDevice");
      open(); /* an earlier task may have spoiled the stream */
      std::optional<HintScope> part;
      if (queue_) part.emplace(*queue_, hints(job));
      (void)hipGetLastError();
      job.launch(stream_);
      finish(job);
      part.reset();
      if (queue_) (void)queue_->stats(); /* throws if the task has destroyed it */
    } catch (...) {
      if (!job.failure && !completed_) job.failure = std::current_exception();
      close();
    }
    completed_ = false;
  }

 private:
  static Hints hints(const Job &job) {
    Hints hints;
    hints.priority = job.task.priority;
    hints.cls = job.task.kind == Kind::latency_critical ? kQueueClassLatencyCritical : kQueueClassBestEffort;
    /* The queue becomes ready at once, and the task has waited already. */
    if (job.task.slo) hints.deadline = std::max<Duration>(job.due - Clock::now(), std::chrono::microseconds(1));
    return hints;
  }
  void finish(Job &job) {
    const hipError_t last = hipGetLastError();
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    const bool captures = hipStreamIsCapturing(stream_, &status) == hipSuccess && status != hipStreamCaptureStatusNone;
    hipGraph_t graph = nullptr;
    if (captures && hipStreamEndCapture(stream_, &graph) == hipSuccess && graph) (void)hipGraphDestroy(graph);
    const hipError_t error = hipStreamSynchronize(stream_);
    if (error != hipSuccess) throw job.error("hipStreamSynchronize", error);
    if (captures) throw job.error("its stream was left in a capture", kXSchedErrorNotAllowed);
    completed_ = true;
    /* hipErrorNotReady is what a query of a stream or event says. */
    if (last == hipSuccess || last == hipErrorNotReady || job.failure) return;
    job.failure = std::make_exception_ptr(job.error("a HIP call", last));
  }
  void open() {
    if (stream_) return;
    check(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    try {
      queue_.emplace(stream_);
    } catch (const Error &error) {
      if (error.result() == kXSchedErrorNotSupported) return;
      close();
      throw;
    }
  }
  void close() noexcept {
    queue_.reset();
    if (stream_) (void)hipStreamDestroy(std::exchange(stream_, nullptr));
  }
  int device_;
  hipStream_t stream_ = nullptr;
  std::optional<Queue> queue_;
  bool completed_ = false;
};

struct KindState {
  KindMetrics metrics;
  std::vector<Duration> times;
};

/* Belongs to the Scheduler and its workers together: a task may destroy the Scheduler. */
struct State {
  static constexpr size_t kept = 4096;
  std::mutex mutex;
  std::condition_variable changed;
  /* A heap; the front begins next. */
  std::vector<std::unique_ptr<Job>> waiting;
  std::array<KindState, 2> kinds;
  uint64_t number = 0, busy = 0;
  bool ending = false;

  KindState &of(const Job &job) { return kinds[static_cast<size_t>(job.task.kind)]; }
  static bool is_later(const std::unique_ptr<Job> &one, const std::unique_ptr<Job> &other) {
    return one->order() > other->order();
  }

  void serve(Lane &lane, bool critical_only) noexcept {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      const auto any = [&] {
        return !waiting.empty() && (!critical_only || waiting.front()->task.kind == Kind::latency_critical);
      };
      changed.wait(lock, [&] { return ending || any(); });
      if (!any()) return;
      std::pop_heap(waiting.begin(), waiting.end(), is_later);
      std::unique_ptr<Job> job = std::move(waiting.back());
      waiting.pop_back();
      KindState &kind = of(*job);
      kind.metrics.waiting--, kind.metrics.running++, busy++;
      lock.unlock();
      lane.run(*job);
      const Duration time = Clock::now() - job->submitted;
      lock.lock();
      kind.metrics.running--;
      if (job->failure) {
        kind.metrics.failed++;
      } else {
        if (kind.times.size() < kept) {
          kind.times.push_back(time); /* has room */
        } else {
          kind.times[kind.metrics.completed % kept] = time;
        }
        kind.metrics.completed++;
        if (job->task.slo && time > *job->task.slo) kind.metrics.missed_slo++;
      }
      lock.unlock();
      job->deliver();
      job.reset();
      lock.lock();
      busy--;
      changed.notify_all();
    }
  }
};

}  // namespace detail

/** Runs tasks: functions that submit work to a stream. Latency-critical tasks begin before best-effort ones; within a kind
 * the higher priority, then the earlier end of the slo, then the earlier submission begins first. Tasks that have begun share
 * the device as the policy in force decides, by the priority, the class and the deadline of each.
 *
 * Each function may be called from any thread. A task may submit tasks, and it may destroy its Scheduler. It must not wait for
 * another task: with all workers waiting, that one would never begin. */
class Scheduler {
 public:
  /** Starts the workers on the current device of the calling thread. If the library is switched off (XSCHED_DISABLE), the device
   * shares itself among the tasks as if there were no queues, and the policy is ignored.
   *
   * kXSchedErrorInvalidValue: workers is not 1 to 256, a priority or a slo is out of its range, or policy is no policy.
   * kXSchedErrorNotSupported: this build does not contain the policy.
   * kXSchedErrorHardware: HIP reports an error.
   * Also std::system_error: a thread cannot be started. */
  explicit Scheduler(const Options &options = Options()) : options_(options) {
    if (options.workers < 1 || options.workers > 256) throw Error("Scheduler: workers", kXSchedErrorInvalidValue);
    for (const TaskDefaults *defaults : {&options.latency_critical, &options.best_effort}) {
      expect_valid(defaults->priority, defaults->slo);
    }
    int device = 0;
    check(hipGetDevice(&device), "hipGetDevice");
    for (detail::KindState &kind : state_->kinds) kind.times.reserve(detail::State::kept);
    std::vector<std::unique_ptr<detail::Lane>> lanes;
    for (unsigned i = 0; i < options.workers; i++) lanes.push_back(std::make_unique<detail::Lane>(device));
    scheduled_ = lanes[0]->scheduled();
    if (scheduled_ && options.policy) check(XHintSetScheduler(kSchedulerLocal, *options.policy), "XHintSetScheduler");
    try {
      workers_.reserve(options.workers);
      for (unsigned i = 0; i < options.workers; i++) {
        const bool critical_only = i < std::min(options.reserved, options.workers - 1);
        workers_.emplace_back([state = state_, lane = std::move(lanes[i]), critical_only]() mutable {
          here() = state.get();
          state->serve(*lane, critical_only);
          lane.reset();
        });
      }
    } catch (...) {
      end(AtEnd::cancel);
      throw;
    }
  }
  Scheduler(const Scheduler &) = delete;
  Scheduler &operator=(const Scheduler &) = delete;
  /** Finishes or cancels the tasks that have not begun, as options.at_end says, and waits for those that have, also while they
   * are suspended. On a worker, in a task, it does not wait for that task. Destroy it before main returns: HIP ends then. */
  ~Scheduler() { end(options_.at_end); }

  /** Submits a task, and returns the future of what its function returns, by value. The future is ready when everything that
   * the function has submitted to its stream has completed. The function and what it has captured are destroyed before that.
   *
   * f: is called once, on a worker, with the worker's stream (hipStream_t) or nothing. What it captures in a graph, it
   *   captures with hipStreamCaptureModeThreadLocal, because other workers call HIP meanwhile. It leaves the stream and its
   *   XQueue as they are; otherwise the next task gets new ones.
   *
   * The future gets what f throws. Otherwise it gets an Error with the HIP error if the stream's work fails, or if
   * hipGetLastError reports an error when f has returned; an f that has dealt with an error calls hipGetLastError itself.
   *
   * kXSchedErrorInvalidValue: kind, priority or slo is out of its range.
   * kXSchedErrorNotAllowed: the Scheduler is ending. */
  template <typename F>
  std::future<detail::ResultOf<F>> submit(Task task, F &&f) {
    using Made = detail::JobOf<std::decay_t<F>, detail::ResultOf<F>>;
    if (task.kind != Kind::latency_critical && task.kind != Kind::best_effort) {
      throw Error("Scheduler::submit: kind", kXSchedErrorInvalidValue);
    }
    const bool critical = task.kind == Kind::latency_critical;
    const TaskDefaults &defaults = critical ? options_.latency_critical : options_.best_effort;
    task.priority = task.priority.value_or(defaults.priority);
    if (!task.slo) task.slo = defaults.slo;
    expect_valid(*task.priority, task.slo);
    auto job = std::make_unique<Made>(std::forward<F>(f));
    auto result = job->promise.get_future();
    job->task = std::move(task);
    job->submitted = detail::Clock::now();
    if (job->task.slo && *job->task.slo < job->due - job->submitted) job->due = job->submitted + *job->task.slo;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->ending) throw Error("Scheduler::submit: the Scheduler is ending", kXSchedErrorNotAllowed);
    job->number = state_->number++;
    KindMetrics &metrics = state_->of(*job).metrics;
    state_->waiting.push_back(std::move(job));
    std::push_heap(state_->waiting.begin(), state_->waiting.end(), detail::State::is_later);
    metrics.submitted++, metrics.waiting++;
    state_->changed.notify_all();
    return result;
  }

  /** Waits until no task is waiting or running. kXSchedErrorNotAllowed: the caller is a task of this Scheduler. */
  void wait() const {
    if (here() == state_.get()) throw Error("Scheduler::wait: the caller is a task", kXSchedErrorNotAllowed);
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->waiting.empty() && state_->busy == 0; });
  }

  /** Returns counts and times. A task is counted before its future is ready. */
  Metrics metrics() const {
    std::unique_lock<std::mutex> lock(state_->mutex);
    std::array<detail::KindState, 2> kinds = state_->kinds;
    lock.unlock();
    for (detail::KindState &kind : kinds) {
      std::vector<Duration> &times = kind.times;
      if (times.empty()) continue;
      std::sort(times.begin(), times.end());
      /* The smallest time that at least so many percent do not exceed. */
      const auto percentile = [&](size_t percent) { return times[(times.size() * percent + 99) / 100 - 1]; };
      kind.metrics.p50 = percentile(50), kind.metrics.p90 = percentile(90), kind.metrics.p99 = percentile(99);
      kind.metrics.max = times.back();
    }
    return Metrics{kinds[0].metrics, kinds[1].metrics};
  }

  /** Returns false if the library is switched off, so that nothing is scheduled. */
  bool scheduled() const noexcept { return scheduled_; }

 private:
  static const void *&here() {
    thread_local const void *state = nullptr; /* whose worker this thread is */
    return state;
  }
  static void expect_valid(Priority priority, const std::optional<Duration> &slo) {
    /* With PRIORITY_NO_EXECUTE a task would never end. */
    const bool valid = priority >= PRIORITY_MIN && priority <= PRIORITY_MAX && (!slo || *slo >= Duration::zero());
    if (!valid) throw Error("Scheduler: priority or slo", kXSchedErrorInvalidValue);
  }
  void end(AtEnd how) noexcept {
    decltype(state_->waiting) cancelled;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->ending = true;
      if (how == AtEnd::cancel) cancelled.swap(state_->waiting);
      for (const auto &job : cancelled) {
        KindMetrics &metrics = state_->of(*job).metrics;
        metrics.waiting--, metrics.cancelled++;
      }
      state_->changed.notify_all();
    }
    for (const auto &job : cancelled) {
      try {
        throw job->error("cancelled, because its Scheduler has ended", kXSchedErrorNotAllowed);
      } catch (...) {
        job->failure = std::current_exception();
      }
      job->deliver();
    }
    for (std::thread &worker : workers_) {
      /* The worker whose task destroys the Scheduler cannot wait for itself. It ends when it has no more tasks. */
      worker.get_id() == std::this_thread::get_id() ? worker.detach() : worker.join();
    }
  }
  Options options_;
  std::shared_ptr<detail::State> state_ = std::make_shared<detail::State>();
  std::vector<std::thread> workers_;
  bool scheduled_ = false;
};

}  // namespace giveway

#endif
