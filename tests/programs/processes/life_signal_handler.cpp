// run: plain
/* A signal handler that uses HIP; the signal comes while its thread is outside HIP. */
#include <pthread.h>
#include <signal.h>

#include "work.h"

static hipStream_t stream;
static Sum *sum;
static volatile sig_atomic_t handled;

static void on_signal(int) {
  sum->launch(stream, 2);
  if (handled % 5 == 4) CHECK(hipStreamSynchronize(stream));
  handled = handled + 1;
}

int main() {
  stream = new_stream();
  Sum made(1);
  sum = &made;
  CHECK(hipDeviceSynchronize());
  struct sigaction action = {};
  action.sa_handler = on_signal;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
  for (int i = 0; i < 60; i++) {
    sum->launch(stream, 1);
    REQUIRE(raise(SIGUSR1) == 0, "raise");
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%d signals %016llx\n", (int)handled, sum->check("work of handlers"));
  return passed();
}
