// run: args alone
/* A program that does what it is told while others take its queues off the hardware: `kfd-faults` plays its faults with it.
 *
 * usage: held [LOG [US]], with commands on its input, a line each; or held alone [ROUNDS]: most of them once, untold.
 *
 *   go        works: rounds of a kernel that takes time (US microseconds, else 1000) and one that changes memory, a few submitted ahead
 *   rest      completes them and says "resting"; so it begins
 *   resume    asks the driver itself (UPDATE_QUEUE, 100 percent) to run its compute queues; says "resumed"
 *   stop      asks it once to take them off; says "stopped" and what came of it
 *   fork      two children that end at once; says "forked"
 *   make      makes streams with hardware queues of their own, which do some work; says "made"
 *   destroy   destroys them; says "destroyed"
 *   burst N MS  on a stream of its own a kernel of MS milliseconds, N small ones behind it; says "burst N submitted" and
 *               "burst N right"
 *   leave MS  while it rests: a kernel of MS milliseconds; says "left"; then waits
 *   exit      returns from main at once, with what it has left behind; else the end of the input ends it
 *
 * LOG gets the CLOCK_MONOTONIC time in nanoseconds, 8 bytes, of each round that has completed. At the end the memory is what
 * the rounds make of it on the processor. */
#include <condition_variable>
#include <mutex>
#include <thread>

#include "kfd_seen.h"
#include "processes.h"
#include "work.h"

static const size_t ELEMENTS = 4096;
static const size_t AHEAD = 32;
static const gw_u64 SEED = 0x68656C64ull;
/* For "alone". */
static const gw_u64 ROUNDS = 40;

/* All compute queues get this percentage; the first error. */
static int update(uint32_t percentage) {
  int error;
  REQUIRE(update_compute_queues(percentage, error) > 0, "no compute queue was seen at its creation");
  return error;
}

static void resume() {
  for (int i = 0; i < 20; i++) {
    int error = update(100);
    REQUIRE(error == 0, "UPDATE_QUEUE: %s", strerror(error));
  }
  printf("resumed\n");
}

static void stop() {
  int error = update(0);
  printf("stopped: %s\n", error == 0 ? "well" : error == ETIME ? "ETIME" : strerror(error));
}

static void fork_twice() {
  for (int child = 0; child < 2; child++) {
    fflush(stdout);
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork: %s", strerror(errno));
    /* Not exit: while this works, the runtime's destructors can fail in a child natively (FreeKfdMemory asserts). */
    if (pid == 0) _exit(40 + child);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 40 + child, "child %d: status %x", child, status);
  }
  printf("forked\n");
}

static std::vector<hipStream_t> made;

/* Each has a hardware queue of its own, which goes with it. */
static void make() {
  const uint32_t mask[] = {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF};
  for (int i = 0; i < 3; i++) {
    hipStream_t stream;
    CHECK(hipExtStreamCreateWithCUMask(&stream, 4, mask));
    Sum sum((gw_u64)i);
    launch_busy(stream, 2 * MS);
    sum.launch(stream, 20);
    CHECK(hipStreamSynchronize(stream));
    sum.check("the work of a stream");
    sum.release();
    made.push_back(stream);
  }
  printf("made\n");
}

static void destroy() {
  for (hipStream_t stream : made) CHECK(hipStreamDestroy(stream));
  made.clear();
  printf("destroyed\n");
}

static void burst(size_t count, gw_u64 ms) {
  hipStream_t stream = new_stream();
  const size_t n = 64, bytes = n * sizeof(gw_u64);
  Words want = pattern_words(n, count);
  gw_u64 *words = device_alloc<gw_u64>(n), *host = nullptr;
  /* Pinned: else a copy waits for the device, and what follows is not submitted before. */
  CHECK(hipHostMalloc((void **)&host, bytes, hipHostMallocDefault));
  memcpy(host, want.data(), bytes);
  CHECK(hipMemcpyAsync(words, host, bytes, hipMemcpyHostToDevice, stream));
  launch_busy(stream, ms * MS);
  for (size_t k = 0; k < count; k++) {
    launch_mix(stream, words, words, n, k);
    cpu_mix(want, want, k);
  }
  CHECK(hipMemcpyAsync(host, words, bytes, hipMemcpyDeviceToHost, stream));
  printf("burst %zu submitted\n", count);
  CHECK(hipStreamSynchronize(stream));
  SAME(host, want.data(), bytes, "the work of a burst");
  CHECK(hipStreamDestroy(stream));
  CHECK(hipHostFree(host));
  CHECK(hipFree(words));
  printf("burst %zu right\n", count);
}

/* What the main thread is to do. */
struct Orders {
  std::mutex lock;
  std::condition_variable changed;
  bool work = false, over = false, at_once = false;
  gw_u64 leave = 0, rests = 1;
};
static Orders orders;

template <typename Change>
static void order(Change change) {
  std::lock_guard<std::mutex> guard(orders.lock);
  change();
  orders.changed.notify_all();
}

/* Reads the commands. What may wait for the device has a thread of its own, so that the next command is heard. */
static void listen() {
  char line[256], what[32];
  std::vector<std::thread> busy;
  while (fgets(line, sizeof line, stdin) != nullptr) {
    unsigned long long count = 0, ms = 0;
    if (sscanf(line, "%31s %llu %llu", what, &count, &ms) < 1) continue;
    const std::string command = what;
    if (command == "go") {
      order([] { orders.work = true; });
    } else if (command == "rest") {
      order([] { orders.work = false, orders.rests++; });
    } else if (command == "resume") {
      resume();
    } else if (command == "stop") {
      stop();
    } else if (command == "fork") {
      fork_twice();
    } else if (command == "make") {
      busy.emplace_back(make);
    } else if (command == "destroy") {
      busy.emplace_back(destroy);
    } else if (command == "burst") {
      busy.emplace_back([=] { burst(count, ms); });
    } else if (command == "leave") {
      order([=] { orders.leave = count; });
    } else if (command == "exit") {
      return order([] { orders.at_once = true; });
    } else {
      FAIL("no command: %s", line);
    }
  }
  for (std::thread &thread : busy) thread.join();
  order([] { orders.over = true; });
}

struct Rounds {
  hipStream_t stream = new_stream(hipStreamDefault);
  hipEvent_t ends[AHEAD];
  Words want = pattern_words(ELEMENTS, SEED), source = pattern_words(ELEMENTS, SEED + 1);
  gw_u64 *words = device_words(want), *from = device_words(source);
  gw_u64 submitted = 0, completed = 0;
  int log;
  gw_u64 round_ns;

  Rounds(int log, gw_u64 round_ns) : log(log), round_ns(round_ns) {
    for (hipEvent_t &end : ends) end = new_event();
  }
  void complete_one() {
    CHECK(hipEventSynchronize(ends[completed % AHEAD]));
    completed++;
    const gw_u64 now = now_ns();
    REQUIRE(log < 0 || write(log, &now, sizeof now) == (ssize_t)sizeof now, "log: %s", strerror(errno));
  }
  void complete() {
    while (completed < submitted) complete_one();
  }
  void submit() {
    if (submitted - completed == AHEAD) complete_one();
    launch_busy(stream, round_ns);
    launch_mix(stream, words, from, ELEMENTS, submitted);
    cpu_mix(want, source, submitted);
    CHECK(hipEventRecord(ends[submitted % AHEAD], stream));
    submitted++;
  }
  void check() {
    complete();
    SAME_WORDS(words, want, "the memory after all rounds");
    CHECK(hipStreamDestroy(stream));
  }
};

static int alone(gw_u64 count) {
  Rounds rounds(-1, MS);
  for (gw_u64 i = 0; i < count; i++) {
    rounds.submit();
    if (i % ROUNDS == ROUNDS / 8) make();
    if (i % ROUNDS == ROUNDS / 4) destroy();
    if (i % ROUNDS == ROUNDS / 2) fork_twice();
    if (i % ROUNDS == ROUNDS * 5 / 8) resume();
    if (i % ROUNDS == ROUNDS * 3 / 4) burst(300, 1);
  }
  rounds.check();
  return passed();
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "alone") == 0) return alone(argc > 2 ? strtoull(argv[2], nullptr, 10) : ROUNDS);
  const int log = argc > 1 ? open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  REQUIRE(argc <= 1 || log >= 0, "%s: %s", argv[1], strerror(errno));
  Rounds rounds(log, argc > 2 ? strtoull(argv[2], nullptr, 10) * 1000 : MS);
  std::thread ears(listen);
  ears.detach();
  gw_u64 rests = 0; /* that it has told of */
  for (;;) {
    std::unique_lock<std::mutex> lock(orders.lock);
    if (orders.at_once) return 7;
    if (orders.over) break;
    if (orders.work) {
      lock.unlock();
      rounds.submit();
      continue;
    }
    if (rests < orders.rests) {
      lock.unlock();
      rounds.complete();
      printf("resting\n");
      rests++;
      continue;
    }
    if (orders.leave != 0) {
      const gw_u64 ms = orders.leave;
      orders.leave = 0;
      lock.unlock();
      launch_busy(rounds.stream, ms * MS);
      printf("left\n");
      continue;
    }
    orders.changed.wait(lock);
  }
  rounds.check();
  return passed();
}
