// run: plain
/* A timer's signal 2,000 times a second while threads are made and work is launched and waited for. Handlers run on threads that
 * the program, or the runtime, leaves open to the signal, and no call is cut short by one. */
#include <errno.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>

#include "work.h"

static std::atomic<long> handled(0);

static void on_alarm(int) {
  const int before = errno;
  handled++;
  errno = before;
}

/* How many threads of this process do not block the signal. */
static int open_threads(int signal) {
  DIR *tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr, "/proc/self/task: %s", strerror(errno));
  int count = 0;
  while (struct dirent *entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    char path[300], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *file = fopen(path, "r");
    unsigned long long blocked = 0;
    bool found = false;
    while (file != nullptr && fgets(line, sizeof line, file) != nullptr)
      found |= sscanf(line, "SigBlk: %llx", &blocked) == 1;
    if (file != nullptr) fclose(file);
    count += found && (blocked >> (signal - 1) & 1) == 0;
  }
  closedir(tasks);
  return count;
}

int main() {
  struct sigaction action = {};
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction: %s", strerror(errno));
  itimerval often = {{0, 500}, {0, 500}}, never = {};
  REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer: %s", strerror(errno));
  Sum sum(7);
  CHECK(hipDeviceSynchronize());
  for (int round = 0; round < 60; round++) {
    hipStream_t stream = new_stream();
    sum.launch(stream, 40);
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamDestroy(stream));
  }
  until([] { return handled >= 100; });
  REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer: %s", strerror(errno));
  printf("%d threads open to it\n", open_threads(SIGALRM));
  printf("%016llx\n", sum.check("the work"));
  return passed();
}
