// run: plain
/* What a profiler is told of launches, by the functions of the runtime that roctracer registers itself with: the calls, with the
 * thread that makes them, and what the device executed, with the call that it belongs to. Until HIP 5.2 these are
 * hipRegisterApiCallback, hipRegisterActivityCallback and hipInitActivityCallback; later one, hipRegisterTracerCallback.
 *
 * Natively a launch is told on the thread that makes it, before the call returns. A deferred one is told on another thread, when
 * it is launched: at the latest when a call has returned that waits for it, and not while its queue is suspended. */
#include "check.h"

#include <dlfcn.h>
#include <hip/amd_detail/hip_prof_str.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace {

const size_t N = 64;
const int ROUNDS = 20;

/* A launch, as the profiler is told of it. */
struct Launch {
  std::string name;
  hipStream_t stream;
  pid_t thread;
  /* True if the program's thread was inside of the call that submits it. */
  bool inside;
};

/* What the device has executed. The beginning of roctracer's activity_record_t. */
struct Record {
  uint32_t domain, kind, operation;
  uint64_t correlation, begin_ns, end_ns;
};
const uint32_t KERNEL = 0x11F0; /* kHipVdiCommandKernel */
const uint32_t DISPATCH = 0;    /* kHipVdiOpIdDispatch */

std::mutex lock;
/* By correlation id, in the order of the calls. */
std::map<uint64_t, Launch> launches;
std::vector<Record> records;
/* The call in which the runtime has made a record's command. */
std::map<uint64_t, uint64_t> call_of;
std::atomic<uint64_t> next_call{1};
std::atomic<bool> in_call{false};
thread_local uint64_t present_call;

void note_call(uint32_t id, const hip_api_data_t &data) {
  const char *name = nullptr;
  hipStream_t stream = nullptr;
  if (id == HIP_API_ID_hipLaunchKernel) {
    stream = data.args.hipLaunchKernel.stream;
    name = hipKernelNameRefByPtr(data.args.hipLaunchKernel.function_address, stream);
  } else if (id == HIP_API_ID_hipModuleLaunchKernel) {
    stream = data.args.hipModuleLaunchKernel.stream;
    name = hipKernelNameRef(data.args.hipModuleLaunchKernel.f);
  } else {
    return;
  }
  std::lock_guard<std::mutex> guard(lock);
  launches[data.correlation_id] = {name != nullptr ? name : "(none)", stream, gettid(), in_call};
}

void note_record(const Record &record) {
  std::lock_guard<std::mutex> guard(lock);
  if (record.kind == KERNEL) records.push_back(record);
}

/* Until HIP 5.2. A call asks twice for its place, at its beginning without an argument. */
struct alignas(hip_api_data_t) Place {
  unsigned char bytes[sizeof(hip_api_data_t)];
};
thread_local Place places[8];
thread_local int depth;

void *give_place(uint32_t, void *, const void *, void *argument) {
  if (argument != nullptr) {
    depth--;
    return nullptr;
  }
  REQUIRE(depth < 8, "calls of calls");
  Place &place = places[depth++];
  place = {};
  present_call = ((hip_api_data_t *)place.bytes)->correlation_id = next_call++;
  return place.bytes;
}

void told_call(uint32_t, uint32_t id, const void *data, void *) {
  const hip_api_data_t &call = *(const hip_api_data_t *)data;
  if (call.phase == 0) note_call(id, call);
}

void told_command(uint64_t record) {
  std::lock_guard<std::mutex> guard(lock);
  call_of[record] = present_call;
}

void told_record(uint32_t, const void *record, void *) { note_record(*(const Record *)record); }

/* Later. As in clr's hip_prof_api.h and prof_protocol.h. */
struct TraceData {
  hip_api_data_t call;
  uint64_t timestamp, phase_data;
  void (*enter)(uint32_t id, TraceData *data);
  void (*exit)(uint32_t id, TraceData *data);
};
const uint32_t OPERATIONS = 2, CALLS = 3; /* ACTIVITY_DOMAIN_HIP_OPS, ACTIVITY_DOMAIN_HIP_API */

int told(uint32_t domain, uint32_t id, void *data) {
  if (domain == CALLS) {
    if (id != HIP_API_ID_hipLaunchKernel && id != HIP_API_ID_hipModuleLaunchKernel) return -1;
    TraceData &trace = *(TraceData *)data;
    trace.call.correlation_id = next_call++;
    trace.enter = [](uint32_t call, TraceData *about) { note_call(call, about->call); };
    trace.exit = [](uint32_t, TraceData *) {};
    return 0;
  }
  if (domain != OPERATIONS || id != DISPATCH) return -1;
  /* 0 asks whether records are wanted. 7.2 also says by 1 that a command is made. */
  if ((uintptr_t)data > 1) {
    const Record &record = *(const Record *)data;
    {
      std::lock_guard<std::mutex> guard(lock);
      call_of[record.correlation] = record.correlation;
    }
    note_record(record);
  }
  return 0;
}

template <typename Function>
Function runtime_function(const char *name) {
  return (Function)dlsym(RTLD_DEFAULT, name);
}

void attach() {
  typedef void (*Tracer)(void *);
  typedef hipError_t (*Register)(uint32_t, void *, void *);
  typedef void (*Init)(void *, void *, void *);
  typedef bool (*Enable)(uint32_t, bool);
  if (auto tracer = runtime_function<Tracer>("hipRegisterTracerCallback")) return tracer((void *)told);
  auto calls = runtime_function<Register>("hipRegisterApiCallback");
  auto activities = runtime_function<Register>("hipRegisterActivityCallback");
  auto init = runtime_function<Init>("hipInitActivityCallback");
  auto enable = runtime_function<Enable>("hipEnableActivityCallback");
  REQUIRE(calls && activities && init && enable, "the runtime has no functions for profilers");
  static int exits;
  init((void *)told_command, (void *)told_record, nullptr);
  REQUIRE(enable(DISPATCH, true), "dispatches");
  for (uint32_t id : {HIP_API_ID_hipLaunchKernel, HIP_API_ID_hipModuleLaunchKernel}) {
    CHECK(activities(id, (void *)give_place, &exits));
    CHECK(calls(id, (void *)told_call, nullptr));
  }
}

/* Ends what `attach` began, before the program ends. */
void detach() {
  typedef void (*Tracer)(void *);
  typedef bool (*Enable)(uint32_t, bool);
  if (auto tracer = runtime_function<Tracer>("hipRegisterTracerCallback")) return tracer(nullptr);
  runtime_function<Enable>("hipEnableActivityCallback")(DISPATCH, false);
}

size_t calls_told() {
  std::lock_guard<std::mutex> guard(lock);
  return launches.size();
}

size_t records_told() {
  std::lock_guard<std::mutex> guard(lock);
  return records.size();
}

struct Work {
  hipStream_t stream;
  Words want = pattern_words(N, 7);
  gw_u64 *data = device_words(want);
  /* What was submitted. */
  std::vector<std::string> names;

  Work() { CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking)); }

  void submit(gw_u64 value) {
    in_call = true;
    if (value % 3 == 0) {
      launch_busy(stream, 10000);
    } else {
      launch_mix(stream, data, data, N, value);
      cpu_mix(want, want, value);
    }
    in_call = false;
    names.push_back(value % 3 == 0 ? "busy" : "mix");
  }

  /* What was told of this stream: the calls in their order, and what the device did in its. */
  std::vector<std::string> calls() const {
    std::lock_guard<std::mutex> guard(lock);
    std::vector<std::string> told;
    for (auto &launch : launches)
      if (launch.second.stream == stream) told.push_back(launch.second.name);
    return told;
  }
  std::vector<std::string> executed() const {
    std::lock_guard<std::mutex> guard(lock);
    std::vector<Record> sorted = records;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Record &one, const Record &other) { return one.begin_ns < other.begin_ns; });
    std::vector<std::string> told;
    uint64_t last_call = 0;
    for (const Record &record : sorted) {
      REQUIRE(record.begin_ns <= record.end_ns, "a record ends before it begins");
      const auto call = call_of.find(record.correlation);
      REQUIRE(call != call_of.end() && launches.count(call->second), "record %llu belongs to no launch",
              (unsigned long long)record.correlation);
      const Launch &launch = launches[call->second];
      if (launch.stream != stream) continue;
      REQUIRE(call->second > last_call, "the device did call %llu after call %llu", (unsigned long long)call->second,
              (unsigned long long)last_call);
      last_call = call->second;
      told.push_back(launch.name);
    }
    return told;
  }
};

/* Suspends a stream's queue, if it has one, until `resume`. */
struct Suspension {
  uint64_t queue = 0;
  explicit Suspension(hipStream_t stream) {
    typedef int (*Create)(uint64_t *, void *);
    typedef int (*Get)(uint64_t *, uint64_t);
    typedef int (*Suspend)(uint64_t, int64_t);
    const char *automatic = getenv("XSCHED_AUTO_XQUEUE");
    auto create = runtime_function<Create>("HipQueueCreate");
    if (create == nullptr || automatic == nullptr || strcmp(automatic, "ON") != 0) return;
    uint64_t hardware = 0;
    REQUIRE(create(&hardware, stream) == 0, "a hardware queue");
    REQUIRE(runtime_function<Get>("XQueueGet")(&queue, hardware) == 0, "an XQueue");
    REQUIRE(runtime_function<Suspend>("XQueueSuspend")(queue, 0) == 0, "it is suspended");
  }
  void resume() const {
    typedef int (*Resume)(uint64_t, int64_t);
    if (queue != 0) REQUIRE(runtime_function<Resume>("XQueueResume")(queue, 0) == 0, "it is resumed");
  }
};

void expect_all(const Work &work, const char *which) {
  REQUIRE(work.calls() == work.names, "%s: the profiler was told of %zu calls in another order, or number, than %zu", which,
          work.calls().size(), work.names.size());
}

}  // namespace

int main() {
  Work first, second;
  CHECK(hipDeviceSynchronize());
  attach();
  for (gw_u64 value = 1; value <= ROUNDS; value++) {
    first.submit(value);
    second.submit(value + 1);
  }
  /* A call that waits for a launch returns when that has been told. */
  CHECK(hipStreamSynchronize(first.stream));
  expect_all(first, "behind a synchronization of the stream");
  CHECK(hipDeviceSynchronize());
  expect_all(second, "behind a synchronization of the device");

  const size_t before = calls_told();
  Suspension suspension(first.stream);
  for (gw_u64 value = 1; value <= 3; value++) first.submit(value);
  if (suspension.queue != 0) {
    REQUIRE(never_in(20 * MS, [&] { return calls_told() != before; }), "launches of a suspended queue were told");
  } else {
    const char *test = getenv("XSCHED_TEST");
    REQUIRE(test != nullptr || calls_told() == before + 3, "a launch was told late");
  }
  suspension.resume();
  CHECK(hipStreamSynchronize(first.stream));
  expect_all(first, "behind a suspension");

  /* Records come from a thread of the runtime's. */
  const size_t all = first.names.size() + second.names.size();
  until([&] { return records_told() == all; });
  REQUIRE(first.executed() == first.names && second.executed() == second.names, "the device did it in another order");
  SAME_WORDS(first.data, first.want, "the first stream's work");
  SAME_WORDS(second.data, second.want, "the second stream's work");

  size_t own = 0, others = 0;
  const pid_t self = gettid();
  for (auto &launch : launches) {
    if (launch.second.thread == self) {
      REQUIRE(launch.second.inside, "told on the program's thread, outside of the call");
      own++;
    } else {
      others++;
    }
  }
  const char *test = getenv("XSCHED_TEST");
  const bool deferred = test != nullptr && strcmp(test, "defer") == 0;
  const bool scheduled = getenv("XSCHED_AUTO_XQUEUE") != nullptr || getenv("XSCHED_SCHEDULER") != nullptr;
  REQUIRE(!deferred || own == 0, "%zu launches were told on the thread that made them, in spite of deferral", own);
  REQUIRE(scheduled || others == 0, "%zu launches were told on another thread", others);
  printf("calls: %zu; kernels of the device: %zu; each stream in its order\n", launches.size(), records.size());
  detach();
  CHECK(hipStreamDestroy(first.stream));
  CHECK(hipStreamDestroy(second.stream));
  return passed();
}
