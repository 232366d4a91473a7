/* The C interface as an application uses it: linked against libshimhip.so, nothing in the environment. Memory contents
 * say what has run. With --off the library is switched off, and every function says so. */
#include "check.h"

#include <atomic>
#include <thread>

#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

static const size_t N = 256;

static void result_at(XResult got, XResult want, int line, const char *what) {
  if (got != want) fail_at(__FILE_NAME__, line, what, "result %d, expected %d", (int)got, (int)want);
}
#define GIVES(call, want) result_at((call), (want), __LINE__, #call)
#define FINE(call) GIVES(call, kXSchedSuccess)

/* A stream with an XQueue, memory that its kernels change, and a pinned copy that its last copy brings to the host. */
struct Bed {
  hipStream_t stream;
  HwQueueHandle hwq = 0;
  XQueueHandle xq = 0;
  gw_u64 *device;
  gw_u64 *host;
  Words model;
  explicit Bed(unsigned flags = hipStreamNonBlocking) : model(N, 0) {
    CHECK(hipStreamCreateWithFlags(&stream, flags));
    device = device_alloc<gw_u64>(N);
    CHECK(hipHostMalloc((void **)&host, N * 8, 0));
    memset(host, 0xAB, N * 8);
    CHECK(hipMemsetAsync(device, 0, N * 8, stream));
    CHECK(hipStreamSynchronize(stream));
    FINE(HipQueueCreate(&hwq, stream));
    FINE(XQueueCreate(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone));
    REQUIRE(hwq != 0 && xq != 0, "0 names nothing");
  }
  /* `count` commands whose order and number the contents tell; the result goes to the host. */
  void work(gw_u64 first, int count = 3) {
    for (int i = 0; i < count; i++) {
      launch_mix(stream, device, device, N, first + i);
      cpu_mix(model, model, first + i);
    }
    fetch();
  }
  void fetch() { CHECK(hipMemcpyAsync(host, device, N * 8, hipMemcpyDeviceToHost, stream)); }
  bool is_done() const { return memcmp(host, model.data(), N * 8) == 0; }
  void expect_done(const char *what) const { SAME(host, model.data(), N * 8, what); }
  void end() {
    FINE(XQueueDestroy(xq));
    FINE(HwQueueDestroy(hwq));
    CHECK(hipStreamDestroy(stream));
    CHECK(hipFree(device));
    CHECK(hipHostFree(host));
  }
};

/* Long enough for anything that could run to have run: work that another stream does meanwhile, on the device and on
 * the host. */
static void let_others_run(hipStream_t other) {
  for (int i = 0; i < 20; i++) {
    launch_busy(other, 2 * MS);
    CHECK(hipStreamSynchronize(other));
  }
}

static XQueueState state_of(XQueueHandle xq) {
  XQueueState state = kQueueStateUnknown;
  FINE(XQueueQuery(xq, &state));
  return state;
}

/* The library accepts numbers out of range. tests/tests/interface.rs checks in its log which ones it uses instead. */
static void hints(XQueueHandle xq) {
  for (Utilization util : {UTILIZATION_MIN, UTILIZATION_MAX, UTILIZATION_DEFAULT, UTILIZATION_MIN - 1, 150})
    FINE(XHintUtilization(xq, util));
  for (Timeslice us : {TIMESLICE_MIN, TIMESLICE_MAX, TIMESLICE_MIN - 1, TIMESLICE_MAX + 1, 0}) FINE(XHintTimeslice(us));
  FINE(XHintTimeslice((Timeslice)TIMESLICE_UNLIMITED));
  FINE(XHintTimeslice(TIMESLICE_DEFAULT));
  FINE(XHintLaxity(xq, 0, PRIORITY_MIN, PRIORITY_MAX));
  FINE(XHintLaxity(xq, 1, PRIORITY_MAX + 1, PRIORITY_NO_EXECUTE - 1));
  FINE(XHintLaxity(xq, -2, 0, 0));
  FINE(XHintLaxity(xq, NO_LAXITY, 1000, -1000));
  for (Deadline us : {(Deadline)0, (Deadline)INT64_MAX, (Deadline)-2, (Deadline)NO_DEADLINE}) FINE(XHintDeadline(xq, us));
  for (size_t k : {(size_t)1, SIZE_MAX, (size_t)0}) FINE(XHintKDeadline(k));
  for (int64_t us : {(int64_t)0, INT64_MAX, (int64_t)-2, (int64_t)-1}) FINE(XHintArrival(xq, us));
  for (int preemptible : {0, 1, -1}) FINE(XHintPreemptible(xq, preemptible));
  for (XQueueClass cls : {kQueueClassLatencyCritical, kQueueClassBestEffort, kQueueClassNone}) FINE(XHintClass(xq, cls));
  for (int cls : {-1, 3}) GIVES(XHintClass(xq, (XQueueClass)cls), kXSchedErrorInvalidValue);
  FINE(XHintJob(7));
  FINE(XHintJob(0));
  for (int percent : {1, 100, 0, 101, -2, -1}) FINE(XHintCap(percent));
}

static void arguments(hipStream_t stream) {
  HwQueueHandle hwq = 0, again = 0;
  XQueueHandle xq = 0, same = 0;
  GIVES(HipQueueCreate(nullptr, stream), kXSchedErrorInvalidValue);
  GIVES(HipQueueCreate(&hwq, (hipStream_t)0x1230), kXSchedErrorInvalidValue);
  FINE(HipQueueCreate(&hwq, stream));
  FINE(HipQueueCreate(&again, stream));
  REQUIRE(hwq == again, "a stream has one hardware queue");
  GIVES(XQueueGet(&xq, hwq), kXSchedErrorNotFound);
  GIVES(XQueueCreate(nullptr, hwq, 1, 0), kXSchedErrorInvalidValue);
  GIVES(XQueueCreate(&xq, hwq + 100, 1, 0), kXSchedErrorNotFound);
  GIVES(XQueueCreate(&xq, 0, 1, 0), kXSchedErrorNotFound);
  for (int level : {-1, 0, 4, 1000}) GIVES(XQueueCreate(&xq, hwq, level, 0), kXSchedErrorInvalidValue);
  GIVES(XQueueCreate(&xq, hwq, 1, kQueueCreateFlagBlockingSubmit), kXSchedErrorNotSupported);
  GIVES(XQueueCreate(&xq, hwq, 1, 2), kXSchedErrorInvalidValue);
  REQUIRE(xq == 0, "a function that fails writes nothing");
  /* The simulated driver saves running waves: any level can be asked for. */
  for (int level : {kPreemptLevelDeactivate, kPreemptLevelInterrupt}) {
    FINE(XQueueCreate(&xq, hwq, level, 0));
    FINE(XQueueDestroy(xq));
  }
  FINE(XQueueCreate(&xq, hwq, 1, 0));
  FINE(XQueueCreate(&same, hwq, 3, 0));
  REQUIRE(same == xq, "a second XQueueCreate names the one that exists");
  same = 0;
  FINE(XQueueGet(&same, hwq));
  REQUIRE(same == xq, "XQueueGet names the one that exists");
  GIVES(HwQueueDestroy(hwq), kXSchedErrorNotAllowed);
  GIVES(XQueueGet(nullptr, hwq), kXSchedErrorInvalidValue);
  GIVES(XQueueGet(&same, 0), kXSchedErrorNotFound);

  FINE(XQueueSetPreemptLevel(xq, kPreemptLevelBlock));
  FINE(XQueueSetPreemptLevel(xq, kPreemptLevelInterrupt));
  GIVES(XQueueSetPreemptLevel(xq, kPreemptLevelMax), kXSchedErrorInvalidValue);
  GIVES(XQueueSetPreemptLevel(xq, kPreemptLevelUnknown), kXSchedErrorInvalidValue);
  FINE(XQueueSetLaunchConfig(xq, -1, -1));
  FINE(XQueueSetLaunchConfig(xq, 4, 2));
  FINE(XQueueSetLaunchConfig(xq, 1, 50));
  GIVES(XQueueSetLaunchConfig(xq, 0x80000000ll, 1), kXSchedErrorInvalidValue);
  GIVES(XQueueQuery(xq, nullptr), kXSchedErrorInvalidValue);
  for (Priority prio : {PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT}) FINE(XHintPriority(xq, prio));
  for (Priority prio : {1000, PRIORITY_NO_EXECUTE - 1, PRIORITY_NO_EXECUTE, PRIORITY_DEFAULT}) FINE(XHintPriority(xq, prio));
  hints(xq);

  XQueueState state;
  for (XQueueHandle wrong : {(XQueueHandle)0, xq + 1000}) {
    GIVES(XQueueDestroy(wrong), kXSchedErrorNotFound);
    GIVES(XQueueSetPreemptLevel(wrong, kPreemptLevelBlock), kXSchedErrorNotFound);
    GIVES(XQueueSetLaunchConfig(wrong, 1, 1), kXSchedErrorNotFound);
    GIVES(XQueueSuspend(wrong, 0), kXSchedErrorNotFound);
    GIVES(XQueueResume(wrong, 0), kXSchedErrorNotFound);
    GIVES(XQueueWaitAll(wrong), kXSchedErrorNotFound);
    GIVES(XQueueQuery(wrong, &state), kXSchedErrorNotFound);
    GIVES(XHintPriority(wrong, 1), kXSchedErrorNotFound);
    GIVES(XHintUtilization(wrong, 1), kXSchedErrorNotFound);
    GIVES(XHintLaxity(wrong, 1, 0, 1), kXSchedErrorNotFound);
    GIVES(XHintDeadline(wrong, 1), kXSchedErrorNotFound);
    GIVES(XHintArrival(wrong, 1), kXSchedErrorNotFound);
    GIVES(XHintPreemptible(wrong, 1), kXSchedErrorNotFound);
    GIVES(HwQueueDestroy(wrong), kXSchedErrorNotFound);
    GIVES(HwQueueSynchronize(wrong), kXSchedErrorNotFound);
  }
  FINE(XQueueDestroy(xq));
  GIVES(XQueueDestroy(xq), kXSchedErrorNotFound);
  GIVES(XQueueGet(&same, hwq), kXSchedErrorNotFound);
  FINE(XQueueCreate(&same, hwq, 1, 0));
  REQUIRE(same != xq, "a handle is not used twice");
  FINE(XQueueDestroy(same));
  FINE(HwQueueDestroy(hwq));
  GIVES(XQueueSuspend(same, 0), kXSchedErrorNotFound);
  GIVES(HwQueueDestroy(hwq), kXSchedErrorNotFound);
  printf("arguments: as documented\n");
}

static void schedulers() {
  GIVES(XHintSetScheduler((XSchedulerType)0, kPolicyHighestPriorityFirst), kXSchedErrorInvalidValue);
  GIVES(XHintSetScheduler((XSchedulerType)9, kPolicyHighestPriorityFirst), kXSchedErrorInvalidValue);
  GIVES(XHintSetScheduler(kSchedulerLocal, (XPolicyType)0), kXSchedErrorInvalidValue);
  GIVES(XHintSetScheduler(kSchedulerLocal, (XPolicyType)12), kXSchedErrorInvalidValue);
  FINE(XHintSetScheduler(kSchedulerLocal, kPolicyHighestPriorityFirst));
  GIVES(XHintSetScheduler(kSchedulerMax, kPolicyUnknown), kXSchedErrorInvalidValue);
  FINE(XHintSetScheduler(kSchedulerAppManaged, kPolicyUnknown));
  printf("schedulers: as documented\n");
}

static void suspension(hipStream_t other) {
  Bed bed;
  bed.work(1);
  FINE(XQueueWaitAll(bed.xq));
  bed.expect_done("what was submitted before a suspension");
  REQUIRE(state_of(bed.xq) == kQueueStateIdle, "XQueueWaitAll proves idleness");

  FINE(XQueueSuspend(bed.xq, kQueueSuspendFlagNone));
  FINE(XQueueSuspend(bed.xq, kQueueSuspendFlagNone));
  const Words before = bed.model;
  bed.work(10);
  bed.work(20);
  let_others_run(other);
  REQUIRE(memcmp(bed.host, before.data(), N * 8) == 0, "a suspended queue has launched something");
  REQUIRE(state_of(bed.xq) == kQueueStateReady, "it has work");
  EXPECT(hipStreamQuery(bed.stream), hipErrorNotReady);
  FINE(HwQueueSynchronize(bed.hwq)); /* waits for what is launched, and nothing is */
  /* It would wait for ever. */
  FINE(XQueueSuspend(bed.xq, kQueueSuspendFlagWaitAll | kQueueSuspendFlagWaitIdle | kQueueSuspendFlagSyncHwQueue));
  FINE(XQueueResume(bed.xq, kQueueResumeFlagNone));
  FINE(XQueueWaitAll(bed.xq));
  bed.expect_done("one resumption ends all suspensions: everything, in order, once");
  FINE(XQueueResume(bed.xq, kQueueResumeFlagNone));
  FINE(XQueueSuspend(bed.xq, kQueueSuspendFlagNone));
  const Words once_more = bed.model;
  bed.work(30);
  let_others_run(other);
  REQUIRE(memcmp(bed.host, once_more.data(), N * 8) == 0, "resuming too often does not count");
  FINE(XQueueResume(bed.xq, kQueueResumeFlagNone));
  CHECK(hipStreamSynchronize(bed.stream));
  bed.expect_done("after the last resumption");
  CHECK(hipStreamQuery(bed.stream));
  bed.end();
  printf("suspension: nothing is launched until the resumption, then all of it in order\n");
}

static void waiting(hipStream_t other) {
  Bed bed;
  FINE(XQueueSuspend(bed.xq, 0));
  bed.work(1);
  std::atomic<bool> returned(false);
  std::thread waiter([&] {
    FINE(XQueueWaitAll(bed.xq));
    bed.expect_done("when XQueueWaitAll returns");
    returned = true;
  });
  let_others_run(other);
  REQUIRE(!returned, "XQueueWaitAll returned before the resumption");
  FINE(XQueueResume(bed.xq, 0));
  waiter.join();

  for (int64_t flag : {kQueueSuspendFlagWaitAll, kQueueSuspendFlagWaitIdle, kQueueSuspendFlagSyncHwQueue}) {
    launch_busy(bed.stream, 30 * MS);
    bed.work(100 + (gw_u64)flag);
    FINE(XQueueSuspend(bed.xq, flag | 0x100)); /* other bits are ignored */
    /* What was launched has completed; with the first two flags that is everything. */
    if (flag != kQueueSuspendFlagSyncHwQueue) bed.expect_done("a suspension that waits");
    const Words before(bed.host, bed.host + N);
    bed.work(200 + (gw_u64)flag);
    let_others_run(other);
    SAME(bed.host, before.data(), N * 8, "suspended with flag " + std::to_string(flag));
    FINE(XQueueResume(bed.xq, 0x100));
    FINE(XQueueWaitAll(bed.xq));
    bed.expect_done("after a suspension that waited");
  }
  bed.end();
  printf("waiting: for what each function says\n");
}

static void dropping(hipStream_t other) {
  Bed bed;
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  bed.work(1);
  FINE(XQueueWaitAll(bed.xq));
  FINE(XQueueSuspend(bed.xq, 0));
  const Words kept = bed.model;
  bed.work(10);
  CHECK(hipEventRecord(event, bed.stream));
  EXPECT(hipEventQuery(event), hipErrorNotReady);
  FINE(XQueueResume(bed.xq, kQueueResumeFlagDropCommands));
  CHECK(hipEventSynchronize(event)); /* others may wait for it: a record is never dropped */
  CHECK(hipStreamQuery(bed.stream));
  bed.model = kept;
  bed.work(20);
  CHECK(hipStreamSynchronize(bed.stream));
  bed.expect_done("what was dropped never ran, what came later did");
  CHECK(hipEventDestroy(event));
  let_others_run(other);
  REQUIRE(bed.is_done(), "nothing comes back");
  bed.end();
  printf("dropping: what was pending never runs\n");
}

static void destruction(hipStream_t other) {
  Bed bed;
  FINE(XQueueSuspend(bed.xq, 0));
  FINE(XQueueSuspend(bed.xq, 0));
  bed.work(1);
  let_others_run(other);
  REQUIRE(!bed.is_done(), "suspended");
  FINE(XQueueDestroy(bed.xq));
  CHECK(hipStreamSynchronize(bed.stream));
  bed.expect_done("XQueueDestroy launches what is pending");
  GIVES(XQueueSuspend(bed.xq, 0), kXSchedErrorNotFound);
  bed.work(10);
  CHECK(hipStreamSynchronize(bed.stream));
  bed.expect_done("the stream goes on without an XQueue");
  FINE(XQueueCreate(&bed.xq, bed.hwq, 1, 0));
  FINE(XQueueSuspend(bed.xq, 0));
  bed.work(20);
  GIVES(HwQueueDestroy(bed.hwq), kXSchedErrorNotAllowed);
  FINE(XQueueDestroy(bed.xq));
  FINE(HwQueueDestroy(bed.hwq));
  CHECK(hipStreamSynchronize(bed.stream));
  bed.expect_done("the pending work runs");
  FINE(HipQueueCreate(&bed.hwq, bed.stream));
  FINE(XQueueCreate(&bed.xq, bed.hwq, 1, 0));
  FINE(XQueueSuspend(bed.xq, 0));
  bed.work(30);
  /* hipStreamDestroy lets the work finish, and takes the queues with it. */
  CHECK(hipStreamDestroy(bed.stream));
  CHECK(hipDeviceSynchronize());
  bed.expect_done("hipStreamDestroy launches what is pending");
  GIVES(XQueueResume(bed.xq, 0), kXSchedErrorNotFound);
  CHECK(hipFree(bed.device));
  CHECK(hipHostFree(bed.host));
  printf("destruction: everything submitted runs\n");
}

/* Many at once, created and destroyed again and again: handles stay apart. */
static void many() {
  for (int round = 0; round < 20; round++) {
    std::vector<Bed> beds;
    for (int i = 0; i < 4; i++) beds.emplace_back();
    for (auto &bed : beds) FINE(XQueueSuspend(bed.xq, 0));
    for (auto &bed : beds) bed.work(round);
    for (auto &bed : beds) REQUIRE(!bed.is_done(), "suspended");
    for (size_t i = beds.size(); i-- > 0;) {
      FINE(XQueueResume(beds[i].xq, 0));
      FINE(XQueueWaitAll(beds[i].xq));
      beds[i].expect_done("resumed in any order");
    }
    for (auto &bed : beds) bed.end();
  }
  printf("many: apart from each other\n");
}

/* A blocking stream and the default one: what a running queue waits for is launched, though suspended. */
static void inheritance() {
  Bed bed(hipStreamDefault);
  FINE(XQueueSuspend(bed.xq, 0));
  bed.work(1);
  REQUIRE(!bed.is_done(), "suspended");
  SAME_WORDS(bed.device, bed.model, "a copy on the default stream follows the blocking streams");
  FINE(XQueueResume(bed.xq, 0));
  FINE(XQueueWaitAll(bed.xq));
  bed.end();
  printf("inheritance: the default stream's work brings what it waits for\n");
}

/* A command of the program: it launches a kernel on the stream of its queue, and notes its turn. */
struct Launch {
  Bed *bed;
  gw_u64 number;
  HwQueueHandle seen = 0;
  std::thread::id thread{};
  XResult result = kXSchedSuccess;
};

static XResult launch_one(HwQueueHandle hwq, void *data) {
  Launch *launch = (Launch *)data;
  launch->seen = hwq;
  launch->thread = std::this_thread::get_id();
  launch_mix(launch->bed->stream, launch->bed->device, launch->bed->device, N, launch->number);
  return launch->result;
}

static void commands(hipStream_t other) {
  Bed bed;
  HwCommandHandle command = 0, later = 0;
  GIVES(HwCommandCreateCallback(nullptr, launch_one, nullptr), kXSchedErrorInvalidValue);
  GIVES(HwCommandCreateCallback(&command, nullptr, nullptr), kXSchedErrorInvalidValue);
  for (HwCommandHandle wrong : {(HwCommandHandle)0, (HwCommandHandle)1000}) {
    GIVES(XQueueSubmit(bed.xq, wrong), kXSchedErrorNotFound);
    GIVES(XQueueWait(bed.xq, wrong), kXSchedErrorNotFound);
    GIVES(HwQueueLaunch(bed.hwq, wrong), kXSchedErrorNotFound);
    GIVES(HwCommandDestroy(wrong), kXSchedErrorNotFound);
  }
  Launch unused{&bed, 0};
  FINE(HwCommandCreateCallback(&command, launch_one, &unused));
  GIVES(XQueueSubmit(bed.xq + 1000, command), kXSchedErrorNotFound);
  GIVES(XQueueWait(bed.xq, command), kXSchedErrorNotFound);
  FINE(HwCommandDestroy(command));
  GIVES(HwCommandDestroy(command), kXSchedErrorNotFound);
  GIVES(XQueueSubmit(bed.xq, command), kXSchedErrorNotFound);

  /* Between HIP calls, on a suspended queue: each in its turn. */
  int64_t before = -1, count = -1;
  FINE(XQueueProfileHwCommandCount(bed.xq, &before));
  FINE(XQueueSuspend(bed.xq, 0));
  Launch first{&bed, 2}, last{&bed, 4};
  bed.work(1, 1);
  FINE(HwCommandCreateCallback(&command, launch_one, &first));
  FINE(XQueueSubmit(bed.xq, command));
  cpu_mix(bed.model, bed.model, 2);
  bed.work(3, 1);
  FINE(HwCommandCreateCallback(&later, launch_one, &last));
  FINE(XQueueSubmit(bed.xq, later));
  cpu_mix(bed.model, bed.model, 4);
  bed.fetch();
  let_others_run(other);
  REQUIRE(first.seen == 0 && last.seen == 0 && !bed.is_done(), "a suspended queue has launched a command");
  FINE(XQueueProfileHwCommandCount(bed.xq, &count));
  REQUIRE(count == before + 7, "two commands, two kernels and three copies were submitted");
  GIVES(XQueueSubmit(bed.xq, command), kXSchedErrorNotFound);
  GIVES(HwCommandDestroy(command), kXSchedErrorNotFound);
  FINE(XQueueResume(bed.xq, 0));
  FINE(XQueueWait(bed.xq, command));
  REQUIRE(first.seen == bed.hwq && first.thread != std::this_thread::get_id(), "called on a thread of the library");
  FINE(XQueueWait(bed.xq, later));
  REQUIRE(last.seen == bed.hwq, "launched when the wait returns");
  FINE(XQueueWaitAll(bed.xq));
  bed.expect_done("commands and HIP calls, in order, once");

  /* At once, even on a suspended queue, and as often as wanted. */
  FINE(XQueueSuspend(bed.xq, 0));
  Launch direct{&bed, 9};
  FINE(HwCommandCreateCallback(&command, launch_one, &direct));
  for (int i = 0; i < 2; i++) {
    FINE(HwQueueLaunch(bed.hwq, command));
    cpu_mix(bed.model, bed.model, 9);
  }
  REQUIRE(direct.seen == bed.hwq && direct.thread == std::this_thread::get_id(), "called on this thread");
  direct.result = kXSchedErrorBadResponse;
  GIVES(HwQueueLaunch(bed.hwq, command), kXSchedErrorBadResponse);
  cpu_mix(bed.model, bed.model, 9);
  /* A discarded command is never called, and needs no waiting. */
  direct.seen = 0;
  FINE(XQueueSubmit(bed.xq, command));
  FINE(XQueueResume(bed.xq, kQueueResumeFlagDropCommands));
  FINE(XQueueWait(bed.xq, command));
  REQUIRE(direct.seen == 0, "a discarded command was called");
  bed.fetch();
  FINE(XQueueWaitAll(bed.xq));
  bed.expect_done("launched at once");

  /* A command that fails is an error of its queue. */
  Launch failing{&bed, 10};
  failing.result = kXSchedErrorHardware;
  FINE(HwCommandCreateCallback(&command, launch_one, &failing));
  FINE(XQueueSubmit(bed.xq, command));
  GIVES(XQueueWait(bed.xq, command), kXSchedErrorHardware);
  GIVES(XQueueWaitAll(bed.xq), kXSchedErrorHardware);
  FINE(XQueueWaitAll(bed.xq));
  bed.end();
  printf("commands: launched in their turn\n");
}

static int switched_off() {
  HwQueueHandle hwq = 0;
  XQueueHandle xq = 0;
  XQueueState state;
  GIVES(HipQueueCreate(&hwq, nullptr), kXSchedErrorNotSupported);
  GIVES(XQueueCreate(&xq, 1, 1, 0), kXSchedErrorNotSupported);
  GIVES(XQueueSuspend(1, 0), kXSchedErrorNotSupported);
  GIVES(XQueueQuery(1, &state), kXSchedErrorNotSupported);
  GIVES(XHintSetScheduler(kSchedulerAppManaged, kPolicyUnknown), kXSchedErrorNotSupported);
  HwCommandHandle command;
  int64_t count;
  GIVES(HwCommandCreateCallback(&command, launch_one, nullptr), kXSchedErrorNotSupported);
  GIVES(XQueueProfileHwCommandCount(1, &count), kXSchedErrorNotSupported);
  Words words = pattern_words(N, 1);
  gw_u64 *device = device_words(words);
  SAME_WORDS(device, words, "HIP works");
  return passed();
}

int main(int argc, char **argv) {
  if (has_flag(argc, argv, "--off")) return switched_off();
  hipStream_t other;
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  arguments(other);
  schedulers();
  suspension(other);
  waiting(other);
  dropping(other);
  destruction(other);
  many();
  inheritance();
  commands(other);
  CHECK(hipStreamDestroy(other));
  return passed();
}
