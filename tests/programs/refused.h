/* For the programs that go through what HIP refuses by its arguments: each call is made behind work that is not launched, and
 * is refused at once, by the code that it has natively. Where the library is in front, the work is held back for good by its
 * own interface. A call that waits for its turn there is seen by a second thread, which lets the work go. */
#ifndef GIVEWAY_TESTS_REFUSED_H
#define GIVEWAY_TESTS_REFUSED_H

#include "check.h"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

/* The library's interface, if it is there and in force (include/xsched/xqueue.h). */
struct Holder {
  typedef int (*Suspends)(unsigned long long, long long);
  Suspends suspend = nullptr, resume = nullptr;
  unsigned long long queue = 0;

  explicit Holder(hipStream_t stream) {
    auto wrap = (int (*)(unsigned long long *, hipStream_t))dlsym(RTLD_DEFAULT, "HipQueueCreate");
    auto make = (int (*)(unsigned long long *, unsigned long long, long long, long long))dlsym(RTLD_DEFAULT, "XQueueCreate");
    auto get = (int (*)(unsigned long long *, unsigned long long))dlsym(RTLD_DEFAULT, "XQueueGet");
    unsigned long long wrapped = 0;
    if (!wrap || !make || !get || wrap(&wrapped, stream) != 0) return;
    if (get(&queue, wrapped) != 0) REQUIRE(make(&queue, wrapped, 1, 0) == 0, "no queue for the stream");
    suspend = (Suspends)dlsym(RTLD_DEFAULT, "XQueueSuspend");
    resume = (Suspends)dlsym(RTLD_DEFAULT, "XQueueResume");
  }
  void hold() {
    if (suspend) REQUIRE(suspend(queue, 0) == 0, "the queue cannot be held");
  }
  void let_go() {
    if (resume) REQUIRE(resume(queue, 0) == 0, "the queue cannot go on");
  }
};

/* Long enough that a call that takes so long waits for somebody. */
static const std::chrono::seconds LONG(20);

static hipStream_t s;
static Holder *holder;

/* The calls that natively are refused, and those of them that waited. */
static int refusals, waits;

/* Makes a call while the stream's work is held, and lets it go behind the call, or when that has taken too long. */
template <typename Called>
static void held(const char *what, Called called) {
  std::mutex mutex;
  std::condition_variable ends;
  bool over = false, waited = false;
  holder->hold();
  launch_busy(s, 1000);
  std::thread watcher([&] {
    std::unique_lock<std::mutex> lock(mutex);
    waited = !ends.wait_for(lock, LONG, [&] { return over; });
    holder->let_go();
  });
  const hipError_t said = called();
  const hipError_t last = hipGetLastError();
  {
    std::lock_guard<std::mutex> lock(mutex);
    over = true;
  }
  ends.notify_one();
  watcher.join();
  printf("%s: %s, last %d", what, hipGetErrorName(said), (int)last);
  refusals += said != hipSuccess;
  if (said != hipSuccess && waited) {
    waits++;
    printf(", WAITED");
  }
}

static void show_end() {
  hipError_t synced = hipStreamSynchronize(s), after = hipGetLastError();
  printf("; then %d, last %d\n", (int)synced, (int)after);
}

/* The call, the last error behind it, and what comes of the stream. */
#define ROW_OF(what, call)                            \
  do {                                                \
    held(what, [&]() -> hipError_t { return call; }); \
    show_end();                                       \
  } while (0)
#define ROW(call) ROW_OF(#call, call)

/* The same of a call that is never deferred, or that some release takes: behind work, which is not held. */
#define TURN(call)                                                          \
  do {                                                                      \
    launch_busy(s, 1000);                                                   \
    hipError_t said = (call), last = hipGetLastError();                     \
    printf("%s: %s, last %d", #call, hipGetErrorName(said), (int)last);     \
    show_end();                                                             \
  } while (0)

static void begin_rows() {
  CHECK(hipStreamCreate(&s));
  launch_busy(s, 1000);
  CHECK(hipStreamSynchronize(s));
  static Holder made(s);
  holder = &made;
}

static int end_rows() {
  REQUIRE(waits == 0, "%d of %d calls waited for work that was held", waits, refusals);
  printf("%d calls were refused\n", refusals);
  return passed();
}

#endif
