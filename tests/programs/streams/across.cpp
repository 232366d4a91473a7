// run: args 0 5 | every-mode
/* Two threads, each with a stream, whose work waits for each other's by events, round after round; the host waits for the
 * end. `across PRIORITY PRIORITY [GO]`: those of the two streams' queues, where there is an XQueue interface; with GO the
 * program says "ready" and begins at the end of its input. */
#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "processes.h"

static const int ROUNDS = 8;
static const size_t N = 1000;

/* A step of one thread becomes visible to the other through these counts: a wait names an event that was recorded. */
static std::atomic<int> recorded[2];
static hipEvent_t events[2][ROUNDS];
static hipStream_t streams[2];
static gw_u64 *data;

static void set_priority(hipStream_t stream, int priority) {
  typedef int (*create_t)(uint64_t *, hipStream_t);
  typedef int (*get_t)(uint64_t *, uint64_t);
  typedef int (*priority_t)(uint64_t, int);
  create_t create = (create_t)dlsym(RTLD_DEFAULT, "HipQueueCreate");
  get_t get = (get_t)dlsym(RTLD_DEFAULT, "XQueueGet");
  priority_t hint = (priority_t)dlsym(RTLD_DEFAULT, "XHintPriority");
  if (create == nullptr || get == nullptr || hint == nullptr) return;
  uint64_t hwq = 0, xq = 0;
  int made = create(&hwq, stream);
  if (made == 5) return; /* kXSchedErrorNotSupported: preloaded, but switched off */
  REQUIRE(made == 0, "HipQueueCreate: %d", made);
  if (get(&xq, hwq) != 0) return; /* preloaded, but without queues */
  REQUIRE(hint(xq, priority) == 0, "XHintPriority");
}

/* The first stream works, then the second one, then the first one again. Several kernels at a time, so that most of them
 * are not launched yet when the other stream waits for what is behind them. */
static void work(int me) {
  const int other = 1 - me;
  for (int i = 0; i < ROUNDS; i++) {
    if (me == 1 || i > 0) {
      const int awaited = me == 1 ? i : i - 1;
      until([&] { return recorded[other] > awaited; });
      CHECK(hipStreamWaitEvent(streams[me], events[other][awaited], 0));
    }
    for (int k = 0; k < 3; k++) launch_busy(streams[me], 2 * MS);
    launch_mix(streams[me], data, data, N, (gw_u64)(2 * i + me));
    CHECK(hipEventRecord(events[me][i], streams[me]));
    recorded[me] = i + 1;
  }
  /* The second one waits for all of the first one's, and ends last. */
  if (me == 1) CHECK(hipStreamSynchronize(streams[me]));
}

int main(int argc, char **argv) {
  Words want = pattern_words(N, 9);
  data = device_words(want);
  for (int i = 0; i < 2; i++) {
    CHECK(hipStreamCreateWithFlags(&streams[i], hipStreamNonBlocking));
    for (auto &event : events[i]) CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    if (argc > 2) set_priority(streams[i], atoi(argv[1 + i]));
  }
  if (argc > 3) {
    printf("ready\n");
    wait_for_end_of_input();
  }
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  for (int i = 0; i < 2 * ROUNDS; i++) cpu_mix(want, want, (gw_u64)i);
  CHECK(hipStreamSynchronize(streams[0]));
  SAME_WORDS(data, want, "what two streams did in turn");
  printf("digest %016llx\n", digest_of(want));
  return passed();
}
