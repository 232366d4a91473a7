/* Hints for parts of a program and for new streams, and what the functions say that find and describe XQueues.
 * `parts --server idle|busy` works under a server: its queue has a part whose work is kept, until a line of input lets it
 * go on. Then the program makes no further call of the interface. `parts --server configured` shows what `xcli config`
 * changes. */
#include "results.h"

#include <atomic>
#include <poll.h>
#include <thread>
#include <vector>

#include "xsched/hip/hal.h"

#define GIVES(call, want) gives_at((call), (want), __LINE__, #call)
static void gives_at(XResult got, XResult want, int line, const char *what) {
  if (got != want) fail_at(__FILE_NAME__, line, what, "result %d, expected %d", (int)got, (int)want);
}

static const size_t N = 256;

static XQueueStatistics stats_of(XQueueHandle xq) {
  XQueueStatistics stats;
  FINE(XQueueStats(xq, &stats, sizeof stats));
  return stats;
}

static Priority priority_of(XQueueHandle xq) { return stats_of(xq).priority; }

static uint64_t begin(XQueueHandle xq, Priority priority, XQueueClass cls = kQueueClassNone, Deadline deadline = NO_DEADLINE) {
  XHintSet hints = {priority, cls, deadline};
  uint64_t scope = 0;
  FINE(XHintBegin(xq, &hints, &scope));
  REQUIRE(scope != 0, "a part has a number");
  return scope;
}

static XQueueHandle make(hipStream_t *stream, HwQueueHandle *hwq) {
  XQueueHandle xq = 0;
  CHECK(hipStreamCreateWithFlags(stream, hipStreamNonBlocking));
  FINE(HipQueueCreate(hwq, *stream));
  FINE(XQueueCreate(&xq, *hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
  return xq;
}

static void end(hipStream_t stream, HwQueueHandle hwq, XQueueHandle xq) {
  FINE(XQueueDestroy(xq));
  FINE(HwQueueDestroy(hwq));
  CHECK(hipStreamDestroy(stream));
}

static void parts(hipStream_t stream, XQueueHandle xq) {
  XHintSet none = {XHINT_KEEP, kQueueClassNone, NO_DEADLINE};
  uint64_t scope = 0;
  GIVES(XHintBegin(xq, nullptr, &scope), kXSchedErrorInvalidValue);
  GIVES(XHintBegin(xq, &none, nullptr), kXSchedErrorInvalidValue);
  GIVES(XHintBegin(0, &none, &scope), kXSchedErrorNotFound);
  GIVES(XHintBegin(XQUEUE_OF_NEW_STREAMS, &none, &scope), kXSchedErrorNotFound);
  for (int cls : {-1, 3}) {
    XHintSet wrong = {0, (XQueueClass)cls, NO_DEADLINE};
    GIVES(XHintBegin(xq, &wrong, &scope), kXSchedErrorInvalidValue);
  }
  REQUIRE(scope == 0, "a function that fails writes nothing");
  GIVES(XHintEnd(xq, 0), kXSchedErrorNotFound);
  GIVES(XHintEnd(0, 1), kXSchedErrorNotFound);

  /* Without work a part ends at once. Parts end in any order. */
  FINE(XHintPriority(xq, 2));
  const uint64_t outer = begin(xq, -7);
  REQUIRE(priority_of(xq) == -7, "a part counts in place of the hint");
  const uint64_t inner = begin(xq, 9);
  const uint64_t silent = begin(xq, XHINT_KEEP, kQueueClassBestEffort, 1000);
  REQUIRE(priority_of(xq) == 9, "the most urgent part counts");
  FINE(XHintPriority(xq, 3));
  REQUIRE(priority_of(xq) == 9, "a hint does not end a part");
  FINE(XHintEnd(xq, outer));
  REQUIRE(priority_of(xq) == 9, "the other part is open");
  FINE(XHintEnd(xq, inner));
  REQUIRE(priority_of(xq) == 3, "the hint counts again");
  FINE(XHintEnd(xq, silent));
  for (uint64_t gone : {outer, inner, silent}) GIVES(XHintEnd(xq, gone), kXSchedErrorNotFound);
  begin(xq, 1000);
  REQUIRE(priority_of(xq) == PRIORITY_MAX, "the nearest number counts");

  /* The work of a part has its hints, also after its end. */
  Words want(N, 1);
  gw_u64 *data = device_words(want);
  const XQueueStatistics before = stats_of(xq);
  FINE(XQueueSuspend(xq, kQueueSuspendFlagNone));
  const uint64_t open = begin(xq, 5);
  launch_mix(stream, data, data, N, 7);
  cpu_mix(want, want, 7);
  FINE(XHintEnd(xq, open));
  XQueueStatistics kept = stats_of(xq);
  REQUIRE(kept.pending == 1 && kept.state == kQueueStateReady && !kept.running, "the launch is kept");
  REQUIRE(kept.deferred == before.deferred + 1 && kept.level == kPreemptLevelBlock, "and counted");
  FINE(XQueueResume(xq, kQueueResumeFlagNone));
  FINE(XQueueWaitAll(xq));
  SAME_WORDS(data, want, "the work of the part");
  kept = stats_of(xq);
  REQUIRE(kept.pending == 0 && kept.in_flight == 0 && kept.running, "everything is done");
  REQUIRE(kept.launched == before.launched + 1 && kept.suspensions == before.suspensions + 1, "and counted");
  CHECK(hipFree(data));
}

/* Two parts on one queue: the work of the less urgent one is still there when that of the urgent one has completed. */
static void overlap(hipStream_t stream, XQueueHandle xq) {
  FINE(XHintPriority(xq, 0));
  FINE(XQueueSuspend(xq, kQueueSuspendFlagNone));
  const uint64_t urgent = begin(xq, 50);
  launch_busy(stream, MS);
  FINE(XHintEnd(xq, urgent));
  const uint64_t other = begin(xq, 20);
  REQUIRE(priority_of(xq) == 50, "the work of the urgent part is kept");
  FINE(XQueueResume(xq, kQueueResumeFlagNone));
  FINE(XQueueWaitAll(xq));
  REQUIRE(priority_of(xq) == 20, "the other part is open");
  FINE(XHintEnd(xq, other));
  REQUIRE(priority_of(xq) == 0, "no part is left");
}

static void new_streams() {
  hipStream_t streams[3];
  HwQueueHandle hwqs[3];
  XQueueHandle xqs[3];
  GIVES(XHintClass(XQUEUE_OF_NEW_STREAMS, (XQueueClass)3), kXSchedErrorInvalidValue);
  FINE(XHintPriority(XQUEUE_OF_NEW_STREAMS, 11));
  FINE(XHintSlo(XQUEUE_OF_NEW_STREAMS, 5000));
  FINE(XHintLaxity(XQUEUE_OF_NEW_STREAMS, 5, 1, 2));
  xqs[0] = make(&streams[0], &hwqs[0]);
  std::thread([&] { xqs[1] = make(&streams[1], &hwqs[1]); }).join();
  REQUIRE(priority_of(xqs[0]) == 11, "a stream of this thread");
  REQUIRE(priority_of(xqs[1]) == 0, "a stream of another thread");
  /* The hints belong to the stream, whichever thread makes its XQueue, and to each XQueue that it gets. */
  FINE(XHintPriority(XQUEUE_OF_NEW_STREAMS, -3));
  CHECK(hipStreamCreate(&streams[2]));
  std::thread([&] {
    FINE(HipQueueCreate(&hwqs[2], streams[2]));
    FINE(XQueueCreate(&xqs[2], hwqs[2], kPreemptLevelBlock, kQueueCreateFlagNone));
  }).join();
  REQUIRE(priority_of(xqs[2]) == -3 && priority_of(xqs[0]) == 11, "the hints at the time at which the stream was made");
  FINE(XHintPriority(xqs[2], 8));
  FINE(XQueueDestroy(xqs[2]));
  FINE(XQueueCreate(&xqs[2], hwqs[2], kPreemptLevelBlock, kQueueCreateFlagNone));
  REQUIRE(priority_of(xqs[2]) == -3, "a new XQueue of the stream");
  end(streams[2], hwqs[2], xqs[2]);
  FINE(XHintPriority(XQUEUE_OF_NEW_STREAMS, XHINT_KEEP));
  xqs[2] = make(&streams[2], &hwqs[2]);
  REQUIRE(priority_of(xqs[2]) == 0, "a hint that is taken back");
  for (int i = 0; i < 3; i++) end(streams[i], hwqs[i], xqs[i]);
}

static void find(hipStream_t stream, XQueueHandle xq) {
  XQueueHandle found = 0;
  FINE(XQueueGetForStream(&found, stream));
  REQUIRE(found == xq, "the XQueue of the stream");
  GIVES(XQueueGetForStream(nullptr, stream), kXSchedErrorInvalidValue);
  GIVES(XQueueGetForStream(&found, (hipStream_t)0x1230), kXSchedErrorInvalidValue);
  GIVES(XQueueGetForStream(&found, nullptr), kXSchedErrorNotFound);
  XQueueStatistics stats;
  GIVES(XQueueStats(xq, nullptr, sizeof stats), kXSchedErrorInvalidValue);
  GIVES(XQueueStats(0, &stats, sizeof stats), kXSchedErrorNotFound);
  for (size_t size : {(size_t)0, sizeof stats - 1, sizeof stats + 8})
    GIVES(XQueueStats(xq, &stats, size), kXSchedErrorInvalidValue);
  REQUIRE(stats_of(xq).threshold == 0 && stats_of(xq).batch_size == 0, "the window adapts");
  FINE(XQueueSetLaunchConfig(xq, 7, 3));
  REQUIRE(stats_of(xq).threshold == 7 && stats_of(xq).batch_size == 3, "the window is fixed");

  hipStream_t other;
  HwQueueHandle hwq;
  const XQueueHandle second = make(&other, &hwq);
  size_t count = 0;
  GIVES(XQueueList(nullptr, nullptr), kXSchedErrorInvalidValue);
  FINE(XQueueList(nullptr, &count));
  REQUIRE(count == 2, "both are counted");
  GIVES(XQueueList(nullptr, &count), kXSchedErrorInvalidValue);
  std::vector<XQueueHandle> all(3, 0);
  count = 1;
  FINE(XQueueList(all.data(), &count));
  REQUIRE(count == 2 && all[0] != 0 && all[1] == 0, "no more is written than fits");
  count = all.size();
  FINE(XQueueList(all.data(), &count));
  REQUIRE(count == 2 && all[2] == 0, "all fit");
  REQUIRE((all[0] == xq && all[1] == second) || (all[0] == second && all[1] == xq), "both are listed");
  end(other, hwq, second);
}

/* Parts of several threads on one queue, beside its work. */
static void threads(hipStream_t stream, XQueueHandle xq) {
  std::atomic<int> left{4};
  std::vector<std::thread> all;
  for (int thread = 0; thread < 4; thread++) {
    all.emplace_back([&, thread] {
      CHECK(hipSetDevice(0));
      for (int round = 0; round < 50; round++) {
        const uint64_t scope = begin(xq, 10 * thread + 1);
        REQUIRE(priority_of(xq) >= 10 * thread + 1, "at least as urgent as this part");
        launch_busy(stream, 1000);
        FINE(XHintEnd(xq, scope));
      }
      left--;
    });
  }
  for (std::thread &thread : all) thread.join();
  FINE(XQueueWaitAll(xq));
  REQUIRE(left == 0 && priority_of(xq) == 0, "no part is left");
}

static bool input_has_ended() {
  struct pollfd input = {0, POLLIN, 0};
  return poll(&input, 1, 0) != 0;
}

static int with_server(bool busy) {
  hipStream_t stream;
  HwQueueHandle hwq;
  const XQueueHandle xq = make(&stream, &hwq);
  FINE(XHintPriority(xq, 1));
  FINE(XHintSetScheduler(kSchedulerGlobal, kPolicyHighestPriorityFirst));
  FINE(XQueueSuspend(xq, kQueueSuspendFlagNone));
  const uint64_t scope = begin(xq, 25, kQueueClassLatencyCritical, 700);
  for (int i = 0; i < 5; i++) launch_busy(stream, MS);
  FINE(XHintEnd(xq, scope));
  printf("kept\n");
  fflush(stdout);
  REQUIRE(getchar() == 'g' && getchar() == '\n', "a line of input");
  FINE(XQueueResume(xq, kQueueResumeFlagNone));
  if (busy) {
    /* Never idle, and never far ahead of the device. */
    hipEvent_t behind[2];
    for (hipEvent_t &event : behind) CHECK(hipEventCreate(&event));
    for (int round = 0; !input_has_ended(); round++) {
      for (int i = 0; i < 4; i++) launch_busy(stream, MS);
      CHECK(hipEventRecord(behind[round % 2], stream));
      if (round > 0) CHECK(hipEventSynchronize(behind[(round + 1) % 2]));
    }
  } else {
    while (getchar() != EOF) {
    }
  }
  CHECK(hipStreamSynchronize(stream));
  return passed();
}

/* Prints level and window when somebody outside has changed them, twice. */
static int configured() {
  hipStream_t stream;
  HwQueueHandle hwq;
  const XQueueHandle xq = make(&stream, &hwq);
  FINE(XHintSetScheduler(kSchedulerGlobal, kPolicyHighestPriorityFirst));
  printf("%llu\n", (unsigned long long)xq);
  fflush(stdout);
  XQueueStatistics before = stats_of(xq);
  REQUIRE(before.threshold == 0 && before.level == 1, "nobody has set anything");
  for (int change = 0; change < 2; change++) {
    until([&] { return stats_of(xq).threshold != before.threshold; });
    const XQueueStatistics now = stats_of(xq);
    printf("level %d, threshold %d, batch %d\n", now.level, (int)now.threshold, (int)now.batch_size);
    fflush(stdout);
    before = now;
  }
  end(stream, hwq, xq);
  return passed();
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "--server") == 0 && strcmp(argv[2], "configured") == 0) return configured();
  if (argc > 2 && strcmp(argv[1], "--server") == 0) return with_server(strcmp(argv[2], "busy") == 0);
  size_t count = 9;
  XQueueHandle all[9];
  FINE(XQueueList(all, &count));
  REQUIRE(count == 0, "there is no XQueue yet");
  hipStream_t stream;
  HwQueueHandle hwq;
  const XQueueHandle xq = make(&stream, &hwq);
  find(stream, xq);
  parts(stream, xq);
  end(stream, hwq, xq);
  const XQueueHandle again = make(&stream, &hwq);
  /* Where the library uses parts of an ended stream again, it does not count what they have done before. */
  const XQueueStatistics fresh = stats_of(again);
  REQUIRE(fresh.direct == 0 && fresh.deferred == 0 && fresh.launched == 0, "a new stream has launched nothing");
  REQUIRE(fresh.suspensions == 0 && fresh.suspended_ns == 0 && fresh.device_ns == 0, "and was not suspended");
  int64_t submitted = -1;
  FINE(XQueueProfileHwCommandCount(again, &submitted));
  REQUIRE(submitted == 0, "nothing was submitted to it");
  overlap(stream, again);
  threads(stream, again);
  end(stream, hwq, again);
  GIVES(XHintEnd(again, 1), kXSchedErrorNotFound);
  new_streams();
  return passed();
}
