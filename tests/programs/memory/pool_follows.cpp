// run: from-hip 7
/* A pool that follows events: what one stream gives back, another one has again at once if it waits for an event that was recorded
 * behind that, and other memory without the wait. Who had it before does not get it while the other one uses it. Where the
 * library has queues, both are suspended meanwhile: everything is pending then. */
#include <dlfcn.h>

#include "work.h"
#include "xsched/hip/hal/hal.h"
#include "xsched/xqueue.h"

static const size_t N = 4096;

/* The library's queue in front of a stream, if it is there and has one. */
struct Queue {
  XQueueHandle handle = 0;
  bool exists = false;

  explicit Queue(hipStream_t stream) {
    auto wrap = (decltype(&HipQueueCreate))dlsym(RTLD_DEFAULT, "HipQueueCreate");
    auto get = (decltype(&XQueueGet))dlsym(RTLD_DEFAULT, "XQueueGet");
    HwQueueHandle hardware;
    exists = wrap != nullptr && wrap(&hardware, stream) == kXSchedSuccess && get(&handle, hardware) == kXSchedSuccess;
  }
  void suspend() { call("XQueueSuspend"); }
  void resume() { call("XQueueResume"); }

 private:
  void call(const char *name) {
    if (!exists) return;
    auto function = (decltype(&XQueueSuspend))dlsym(RTLD_DEFAULT, name);
    REQUIRE(function(handle, 0) == kXSchedSuccess, "%s", name);
  }
};

static hipMemPool_t new_pool() {
  hipMemPool_t pool;
  hipMemPoolProps properties = {};
  properties.allocType = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  CHECK(hipMemPoolCreate(&pool, &properties));
  int on = 1, off = 0;
  uint64_t all = UINT64_MAX;
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolReuseFollowEventDependencies, &on));
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolReuseAllowOpportunistic, &off));
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolReuseAllowInternalDependencies, &off));
  CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &all));
  return pool;
}

int main() {
  hipStream_t first = new_stream(), second = new_stream();
  hipEvent_t event = new_event();
  Words want = pattern_words(N, 1), zero(N, 0);
  gw_u64 *sum = device_words(want);
  auto use = [&](hipStream_t stream, gw_u64 *block, gw_u64 value) {
    CHECK(hipMemsetAsync(block, 0, N * 8, stream));
    launch_mix(stream, block, sum, N, value);
    launch_mix(stream, sum, block, N, value);
    Words made = zero;
    cpu_mix(made, want, value);
    cpu_mix(want, made, value);
  };
  auto block_of = [&](hipMemPool_t pool, hipStream_t stream) {
    gw_u64 *block = nullptr;
    CHECK(hipMallocFromPoolAsync((void **)&block, N * 8, pool, stream));
    return block;
  };
  launch_busy(first, 1000);
  launch_busy(second, 1000);
  Queue queues[] = {Queue(first), Queue(second)};
  for (gw_u64 round = 0; round < 8; round++) {
    const bool waits = round % 2 == 0;
    /* A pool with one block: nothing else that it could hand out. */
    hipMemPool_t pool = new_pool();
    gw_u64 *one = block_of(pool, first);
    launch_busy(first, MS);
    use(first, one, round);
    for (Queue &queue : queues) queue.suspend();
    CHECK(hipFreeAsync(one, first));
    CHECK(hipEventRecord(event, first));
    if (waits) CHECK(hipStreamWaitEvent(second, event, 0));
    gw_u64 *other = block_of(pool, second);
    printf("round %llu: %s\n", round, other == one ? "the same memory" : "other memory");
    if (!waits) CHECK(hipStreamWaitEvent(second, event, 0));
    launch_busy(second, 5 * MS);
    use(second, other, 100 + round);
    CHECK(hipFreeAsync(other, second));
    for (Queue &queue : queues) queue.resume();
    /* The pool knows of all that has been given back. */
    uint64_t used = 0;
    CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used));
    gw_u64 *third = block_of(pool, first);
    if (waits) REQUIRE(third != other, "its first owner has it while the second one uses it");
    CHECK(hipMemsetAsync(third, 0xff, N * 8, first));
    CHECK(hipFreeAsync(third, first));
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemPoolDestroy(pool));
  }
  SAME_WORDS(sum, want, "blocks of a pool");
  printf("%016llx\n", digest_of(want));
  return passed();
}
