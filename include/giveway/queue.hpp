/* The C interface for C++ programs: queues, and parts of a program with other hints. Part of giveway. C++17 or newer, for hipcc,
 * and for other compilers with HIP's headers and -D__HIP_PLATFORM_AMD__. Link with -lshimhip before the HIP runtime.
 *
 * Errors: what fails throws giveway::Error, unless it says otherwise. Destructors throw nothing and ignore what fails. Each
 * function can give kXSchedErrorNotSupported: the library is switched off in this process (XSCHED_DISABLE).
 * Threads: a function of an object may be called from any thread, also while others call functions of it. Only one thread
 *   may move, assign, close or destroy it, and nobody else may use it meanwhile. Nothing may be called from a callback that the
 *   HIP runtime runs.
 * Times: std::chrono, of any unit that converts to nanoseconds. The library counts in microseconds; a fraction counts as a
 *   whole one. A time below 0 is kXSchedErrorInvalidValue. */
#ifndef GIVEWAY_QUEUE_HPP
#define GIVEWAY_QUEUE_HPP

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

namespace giveway {

using Duration = std::chrono::nanoseconds;

/** Returns what a result means, as part of a sentence. */
inline const char *text(XResult result) noexcept {
  switch (result) {
    case kXSchedSuccess: return "success";
    case kXSchedErrorHardware: return "the HIP runtime or the device reported an error";
    case kXSchedErrorInvalidValue: return "an argument is out of its range, or a pointer is null";
    case kXSchedErrorNotFound: return "the handle names nothing, or nothing any more";
    case kXSchedErrorNotAllowed: return "the object is not in a state that permits it";
    case kXSchedErrorNotSupported: return "not supported here, or the library is switched off";
    case kXSchedErrorBadResponse: return "the answer of the scheduler makes no sense";
    case kXSchedErrorUnknown: break;
  }
  return "unknown error";
}

/** A call that failed. what() names the call and the reason. */
class Error : public std::runtime_error {
 public:
  Error(const std::string &call, XResult result) : runtime_error(call + ": " + text(result)), result_(result) {}
  Error(const std::string &call, hipError_t error)
      : runtime_error(call + ": " + hipGetErrorName(error)), result_(kXSchedErrorHardware), hip_(error) {}
  /** Returns the result; kXSchedErrorHardware for an error of a HIP call. */
  XResult result() const noexcept { return result_; }
  /** Returns the error of the HIP call; hipSuccess if another call failed. */
  hipError_t hip() const noexcept { return hip_; }

 private:
  XResult result_;
  hipError_t hip_ = hipSuccess;
};

/** Throws an Error unless the call has succeeded. */
inline void check(XResult result, const std::string &call) {
  if (result != kXSchedSuccess) throw Error(call, result);
}
inline void check(hipError_t error, const std::string &call) {
  if (error != hipSuccess) throw Error(call, error);
}

namespace detail {
/* Also the largest time stays one: the library uses 64-bit microseconds. */
inline int64_t microseconds(Duration time, const char *call) {
  if (time < Duration::zero()) throw Error(call, kXSchedErrorInvalidValue);
  return time.count() / 1000 + (time.count() % 1000 != 0);
}
}  // namespace detail

/** Hints for a queue. What is not set stays as it is. */
struct Hints {
  /** PRIORITY_MIN to PRIORITY_MAX, or PRIORITY_NO_EXECUTE; bigger is more urgent. Others count as the nearest one. */
  std::optional<Priority> priority{};
  /** kQueueClassNone: not set. */
  XQueueClass cls = kQueueClassNone;
  /** From the moment at which the queue becomes ready; 0 counts as 1 us. */
  std::optional<Duration> deadline{};
};

/** An XQueue in front of a HIP stream. It is destroyed with this object if this object has made it. The hardware queue stays
 * until the stream is destroyed, because other parts of the program may use it.
 *
 * The stream should outlive the object. When the stream or the XQueue is destroyed before, each function gives
 * kXSchedErrorNotFound, and so does each function of an object that was moved from or closed. */
class Queue {
 public:
  /** Takes the XQueue that the stream has, also an automatic one (XSCHED_AUTO_XQUEUE), or makes one. Two objects for one stream
   * name one XQueue, and it ends with the object that has made it.
   *
   * stream: as in HipQueueCreate; a null stream is that of the current device.
   * level: for one that is made; an existing one keeps its own.
   *
   * kXSchedErrorInvalidValue: stream is not a stream, or level is not 1, 2 or 3.
   * kXSchedErrorHardware, kXSchedErrorNotSupported: as XQueueCreate. */
  explicit Queue(hipStream_t stream, XPreemptLevel level = kPreemptLevelBlock) : stream_(stream) {
    static std::mutex one_at_a_time; /* two threads must not both believe that they have made it */
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    const XResult found = XQueueGetForStream(&xq_, stream);
    if (found == kXSchedSuccess) return;
    if (found != kXSchedErrorNotFound) throw Error("XQueueGetForStream", found);
    HwQueueHandle hwq = 0;
    check(HipQueueCreate(&hwq, stream), "HipQueueCreate");
    check(XQueueCreate(&xq_, hwq, level, kQueueCreateFlagNone), "XQueueCreate");
    made_ = true;
  }
  Queue(Queue &&other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)),
        xq_(std::exchange(other.xq_, 0)),
        made_(std::exchange(other.made_, false)) {}
  Queue &operator=(Queue &&other) noexcept {
    Queue taken(std::move(other));
    std::swap(stream_, taken.stream_), std::swap(xq_, taken.xq_), std::swap(made_, taken.made_);
    return *this;
  }
  /** Launches everything submitted, as XQueueDestroy, if this object has made the XQueue. */
  ~Queue() {
    if (made_) (void)XQueueDestroy(xq_);
  }
  /** The same as the destructor, but says what fails. The object is empty afterwards in any case. */
  void close() {
    const XQueueHandle xq = std::exchange(xq_, 0);
    stream_ = nullptr;
    if (std::exchange(made_, false) || xq == 0) check(XQueueDestroy(xq), "XQueueDestroy");
  }

  /** Returns the handle for functions of the C interface; 0 if the object is empty. */
  XQueueHandle handle() const noexcept { return xq_; }
  hipStream_t stream() const noexcept { return stream_; }
  /** Returns whether this object has made the XQueue. */
  bool made() const noexcept { return made_; }

  /** Sets the priority: XHintPriority. */
  Queue &priority(Priority priority) { return done(XHintPriority(xq_, priority), "XHintPriority"); }
  /** Sets class latency-critical and a deadline, or takes both back (std::nullopt): XHintSlo. */
  Queue &slo(std::optional<Duration> slo) {
    return done(XHintSlo(xq_, slo ? detail::microseconds(*slo, "XHintSlo") : NO_DEADLINE), "XHintSlo");
  }
  /** Sets the class: XHintClass. */
  Queue &cls(XQueueClass cls) { return done(XHintClass(xq_, cls), "XHintClass"); }
  /** Announces work after this time from now, or takes that back (std::nullopt): XHintArrival. */
  Queue &arrival(std::optional<Duration> after) {
    return done(XHintArrival(xq_, after ? detail::microseconds(*after, "XHintArrival") : -1), "XHintArrival");
  }
  /** Sets how much may be in flight, in commands; 0 keeps what is: XQueueSetLaunchConfig. */
  Queue &launch_config(int64_t threshold, int64_t batch_size = 0) {
    return done(XQueueSetLaunchConfig(xq_, threshold, batch_size), "XQueueSetLaunchConfig");
  }
  /** Sets the level: XQueueSetPreemptLevel. */
  Queue &level(XPreemptLevel level) { return done(XQueueSetPreemptLevel(xq_, level), "XQueueSetPreemptLevel"); }

  /** Suspends; flags: bits of XQueueSuspendFlag, which make it wait: XQueueSuspend. */
  void suspend(int64_t flags = kQueueSuspendFlagNone) { check(XQueueSuspend(xq_, flags), "XQueueSuspend"); }
  /** Ends all suspensions by suspend; flags: bits of XQueueResumeFlag: XQueueResume. */
  void resume(int64_t flags = kQueueResumeFlagNone) { check(XQueueResume(xq_, flags), "XQueueResume"); }
  /** Waits until everything submitted before the call has completed: XQueueWaitAll. kXSchedErrorHardware: the work failed. */
  void wait() const { check(XQueueWaitAll(xq_), "XQueueWaitAll"); }
  /** Returns what the XQueue has done, and how it is configured: XQueueStats. */
  XQueueStatistics stats() const {
    XQueueStatistics stats{};
    check(XQueueStats(xq_, &stats, sizeof stats), "XQueueStats");
    return stats;
  }

 private:
  Queue &done(XResult result, const char *call) {
    check(result, call);
    return *this;
  }
  hipStream_t stream_ = nullptr;
  XQueueHandle xq_ = 0;
  bool made_ = false;
};

/** Returns the XQueues of this process: XQueueList. */
inline std::vector<XQueueHandle> queues() {
  std::vector<XQueueHandle> all;
  for (size_t count = 0;; all.resize(count)) {
    count = all.size();
    check(XQueueList(all.data(), &count), "XQueueList");
    if (count > all.size()) continue; /* others have been made meanwhile */
    all.resize(count);
    return all;
  }
}

/** Sets hints for the XQueues of the streams that the calling thread creates from now on (XQUEUE_OF_NEW_STREAMS). A class or
 * deadline that is not set is taken back, so that the environment's counts again. A priority that is not set stays. */
inline void thread_defaults(const Hints &hints) {
  const Deadline deadline = hints.deadline ? detail::microseconds(*hints.deadline, "XHintDeadline") : NO_DEADLINE;
  if (hints.priority) check(XHintPriority(XQUEUE_OF_NEW_STREAMS, *hints.priority), "XHintPriority");
  check(XHintClass(XQUEUE_OF_NEW_STREAMS, hints.cls), "XHintClass");
  check(XHintDeadline(XQUEUE_OF_NEW_STREAMS, deadline), "XHintDeadline");
}

/** A part of the program in which a queue has other hints: XHintBegin to XHintEnd. They count until everything that was submitted
 * to the queue before the end has completed. Parts of several threads can overlap; the most urgent hints count. A part can end on
 * another thread than it began on, and after its queue, which is no error for the destructor. */
class HintScope {
 public:
  /** kXSchedErrorNotFound: there is no such XQueue. kXSchedErrorInvalidValue: the class is not in its enumeration. */
  HintScope(XQueueHandle xq, const Hints &hints) : xq_(xq) {
    XHintSet set{};
    /* XHINT_KEEP as a priority would mean that there is none. */
    set.priority = hints.priority ? std::max<Priority>(*hints.priority, XHINT_KEEP + 1) : XHINT_KEEP;
    set.cls = hints.cls;
    set.deadline = hints.deadline ? detail::microseconds(*hints.deadline, "XHintBegin") : NO_DEADLINE;
    check(XHintBegin(xq, &set, &scope_), "XHintBegin");
    open_ = true;
  }
  HintScope(const Queue &queue, const Hints &hints) : HintScope(queue.handle(), hints) {}
  HintScope(HintScope &&other) noexcept : xq_(other.xq_), scope_(other.scope_), open_(std::exchange(other.open_, false)) {}
  HintScope &operator=(HintScope &&other) noexcept {
    HintScope taken(std::move(other));
    std::swap(xq_, taken.xq_), std::swap(scope_, taken.scope_), std::swap(open_, taken.open_);
    return *this;
  }
  ~HintScope() {
    if (open_) (void)XHintEnd(xq_, scope_);
  }
  /** Ends the part now. It waits for nothing. kXSchedErrorNotFound: the XQueue is gone, or the part has ended or was moved. */
  void end() { check(std::exchange(open_, false) ? XHintEnd(xq_, scope_) : kXSchedErrorNotFound, "XHintEnd"); }

 private:
  XQueueHandle xq_ = 0;
  uint64_t scope_ = 0;
  bool open_ = false;
};

/** A part of the program in which a queue has another priority. */
class PriorityScope : public HintScope {
 public:
  PriorityScope(XQueueHandle xq, Priority priority) : HintScope(xq, of(priority)) {}
  PriorityScope(const Queue &queue, Priority priority) : HintScope(queue, of(priority)) {}

 private:
  static Hints of(Priority priority) {
    Hints hints;
    hints.priority = priority;
    return hints;
  }
};

}  // namespace giveway

#endif
