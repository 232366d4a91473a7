// run: every-mode
/* Threads are cancelled: at a point of their own between launches, and with the request standing while they are in HIP. */
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "work.h"

static std::atomic<int> launched(0), cleaned(0);

struct Cleanup {
  ~Cleanup() { cleaned++; }
};

static void *launching(void *argument) {
  Sum *sum = (Sum *)argument;
  Cleanup cleanup;
  hipStream_t stream = new_stream();
  for (;;) {
    int before;
    /* Only between the pieces, so that the sum is known. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    sum->launch(stream, 3);
    CHECK(hipStreamSynchronize(stream));
    launched++;
    pthread_setcancelstate(before, nullptr);
    pthread_testcancel();
  }
}

static std::atomic<bool> requested(false);

/* Cancelled before its first call; acts on it only when it says so, however long it was inside HIP until then. */
static void *pending(void *argument) {
  Sum *sum = (Sum *)argument;
  Cleanup cleanup;
  while (!requested.load()) sched_yield(); /* until() would be a point of cancellation */
  hipStream_t stream = new_stream();
  launch_busy(stream, 10 * MS);
  for (int i = 0; i < 200; i++) sum->launch(stream, 1);
  launched++;
  pthread_testcancel();
  FAIL("not cancelled");
}

int main() {
  for (int i = 0; i < 8; i++) {
    Sum sum((gw_u64)i);
    CHECK(hipDeviceSynchronize());
    launched = 0;
    requested = false;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, i % 2 ? pending : launching, &sum) == 0, "pthread_create");
    if (i % 2 == 0) until([] { return launched >= 5; });
    REQUIRE(pthread_cancel(thread) == 0, "pthread_cancel");
    requested = true;
    void *result = nullptr;
    REQUIRE(pthread_join(thread, &result) == 0, "pthread_join");
    REQUIRE(result == PTHREAD_CANCELED, "it ended by itself");
    CHECK(hipDeviceSynchronize());
    sum.check("work of a cancelled thread");
  }
  printf("%d cleaned up\n", cleaned.load());
  return passed();
}
