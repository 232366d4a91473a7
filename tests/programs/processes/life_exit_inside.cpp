// run: plain
/* exit() while other threads are inside HIP calls (waiting for a stream, an event, the device, a copy) and work is pending.
 * Each way of ending in a process of its own. */
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "processes.h"
#include "work.h"

/* A thread, and what it had used of a processor, in ticks, just before its call. */
struct Caller {
  std::atomic<int> thread{0};
  long ticks = 0;
};

/* What the kernel says of a thread: its state, and what it has used of a processor. */
static char state_of(int thread, long &ticks) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  char state = 0;
  long user = 0, system = 0;
  sscanf(line.c_str() + line.rfind(')') + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %ld", &state, &user, &system);
  ticks = user + system;
  return state;
}

/* Whether it sleeps or spins inside the call: who enters the runtime only after exit() has begun crashes natively. */
static bool is_inside(const Caller &caller) {
  if (caller.thread == 0) return false;
  long ticks = 0;
  return state_of(caller.thread, ticks) == 'S' || ticks > caller.ticks + 1;
}

static int die(const std::string &way) {
  static Caller callers[4];
  hipStream_t streams[4];
  hipEvent_t event = new_event();
  for (auto &stream : streams) stream = new_stream();
  Sum sum(1);
  static gw_u64 *host;
  CHECK(hipHostMalloc((void **)&host, 8000, hipHostMallocDefault));
  CHECK(hipDeviceSynchronize());
  for (auto stream : streams) {
    launch_busy(stream, 2000 * MS);
    sum.launch(stream, 20);
  }
  CHECK(hipEventRecord(event, streams[1]));
  auto wait_in = [&](int what) {
    (void)state_of(gettid(), callers[what].ticks);
    callers[what].thread = gettid();
    switch (what) {
      case 0: (void)hipStreamSynchronize(streams[0]); break;
      case 1: (void)hipEventSynchronize(event); break;
      case 2: (void)hipMemcpyWithStream(host, sum.device, 8000, hipMemcpyDeviceToHost, streams[2]); break;
      default: (void)hipStreamSynchronize(streams[3]);
    }
    for (;;) pause(); /* what comes after a call that outlives exit() is nobody's */
  };
  for (int what = 0; what < 4; what++) std::thread(wait_in, what).detach();
  for (auto &caller : callers) until([&] { return is_inside(caller); });
  puts("going");
  if (way == "exit") exit(31);
  if (way == "return") return 32;
  _exit(33);
}

int main(int argc, char **argv) {
  if (argc > 1) return die(argv[1]);
  for (const char *way : {"exit", "return", "_exit"}) {
    Child child = start_self({way});
    std::string line = child.line();
    int status = child.end();
    printf("%s: %s, %d\n", way, line.c_str(), status);
  }
  return passed();
}
