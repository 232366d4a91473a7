// run: args interrupt | every-mode
/* 400 allocations, launches, synchronizes and frees under a timer signal every 100 microseconds.
 * Argument: "none" (no timer), "restart" (SA_RESTART) or "interrupt" (without). The harness compares the
 * ioctls. */
#include <signal.h>
#include <sys/time.h>

#include "check.h"

static volatile sig_atomic_t ticks;

static void on_tick(int) {
  ticks = ticks + 1;
}

static void start_timer(bool restart) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_tick;
  action.sa_flags = restart ? SA_RESTART : 0;
  REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
  itimerval every = {{0, 100}, {0, 100}};
  REQUIRE(setitimer(ITIMER_REAL, &every, nullptr) == 0, "setitimer");
}

static void stop_timer() {
  itimerval never = {{0, 0}, {0, 0}};
  REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer");
}

int main(int argc, char **argv) {
  std::string mode = argc > 1 ? argv[1] : "none";
  const size_t n = 1024;
  const int rounds = 400;
  Words want = pattern_words(n, 1);
  gw_u64 *a = device_words(want);
  launch_mix(nullptr, a, a, n, 0);
  CHECK(hipDeviceSynchronize());
  cpu_mix(want, want, 0);

  if (mode != "none") start_timer(mode == "restart");
  for (int i = 0; i < rounds; i++) {
    void *p = nullptr;
    /* Large enough that the runtime asks the driver each time. */
    CHECK(hipMalloc(&p, 4 * MIB + (size_t)(i % 7) * 64 * KIB));
    CHECK(hipMemcpyAsync(p, a, n * sizeof(gw_u64), hipMemcpyDeviceToDevice, nullptr));
    launch_mix(nullptr, a, (gw_u64 *)p, n, (gw_u64)i);
    CHECK(hipDeviceSynchronize());
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipFree(p));
  }
  launch_busy(nullptr, 50 * MS); /* the wait for an interrupt is interrupted, too */
  CHECK(hipDeviceSynchronize());
  stop_timer();
  REQUIRE(mode == "none" || ticks > 20, "only %d ticks came", (int)ticks);
  SAME_WORDS(a, want, "work under a timer signal");
  printf("%d rounds %016llx\n", rounds, digest_of(want));
  CHECK(hipFree(a));
  return passed();
}
