// run: plain
/* A process-wide signal reaches the thread that is meant to get it, and no thread that the program did not make. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "work.h"

static std::atomic<int> wrong(0), right(0);
static pthread_t wanted;

static void on_signal(int) {
  if (pthread_equal(pthread_self(), wanted)) right++;
  else wrong++;
}

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  sum.launch(stream, 50);
  CHECK(hipStreamSynchronize(stream));
  struct sigaction action = {};
  action.sa_handler = on_signal;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  std::atomic<bool> over(false);
  std::atomic<int> ready(0);
  /* The runtime's own threads are not ours to mask, so the signal is blocked everywhere here but in one thread, and sent
   * to the process: natively it is delivered there or to one of the runtime's. The program counts only its own. */
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread receiver([&] {
    wanted = pthread_self();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ready = 1;
    while (!over.load()) std::this_thread::yield();
  });
  until([&] { return ready == 1; });
  for (int i = 0; i < 50; i++) {
    int before = right.load() + wrong.load();
    REQUIRE(pthread_kill(receiver.native_handle(), SIGUSR1) == 0, "pthread_kill");
    sum.launch(stream, 3);
    until([&] { return right + wrong != before; });
  }
  over = true;
  receiver.join();
  CHECK(hipStreamSynchronize(stream));
  printf("%d right, %d wrong %016llx\n", right.load(), wrong.load(), sum.check("work between signals"));
  return passed();
}
