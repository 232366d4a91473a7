/* What can be deferred returns while its queue is suspended, and happens in order afterwards: the same calls are made on
 * a stream that is suspended and, one by one, on a stream that is not. At the end both have the same memory. A call that
 * waits where it must not never returns, and the last line names it. Other streams go on all the time. */
#include "results.h"

#include <atomic>
#include <functional>
#include <thread>

#include "xsched/hip/hal.h"

static const size_t N = 2048, PITCH = 256, ROWS = 32, WIDTH = 200;
static_assert(N * 8 >= PITCH * ROWS * 2, "the rows fit");

static const size_t TABLE = 64;
__device__ gw_u64 table[TABLE];

/* A stream and the memory that the calls work on. */
struct Side {
  hipStream_t stream;
  gw_u64 *a, *b, *pinned;
  gw_u64 *block = nullptr;    /* memory of the pool */
  hipGraphExec_t exec = nullptr;
  bool suspended = false;
  Side() {
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    a = device_words(pattern_words(N, 1));
    b = device_words(pattern_words(N, 2));
    CHECK(hipHostMalloc((void **)&pinned, N * 8, 0));
    fill_pattern(pinned, N * 8, 3);
  }
  char *at(gw_u64 *p, size_t offset) const { return (char *)p + offset; }
};

/* A call of the program's, with pageable memory that it overwrites as soon as the call has returned. */
struct Step {
  const char *name;
  std::function<void(Side &)> call;
};

/* A graph of two kernels. The stream is never destroyed: 5.2.3 hangs there as long as a pool holds anything
 * (Heap::RemoveStream in hip_mempool_impl.cpp). */
static hipGraph_t captured(Side &side, gw_u64 value) {
  hipGraph_t graph;
  static hipStream_t stream = nullptr;
  if (stream == nullptr) CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_mix(stream, side.a, side.b, N, value);
  launch_mix(stream, side.b, side.a, N, value + 1);
  CHECK(hipStreamEndCapture(stream, &graph));
  return graph;
}

static hipGraphExec_t instantiated(Side &side, gw_u64 value) {
  hipGraph_t graph = captured(side, value);
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  CHECK(hipGraphDestroy(graph));
  return exec;
}

static const Step STEPS[] = {
    {"hipLaunchKernel", [](Side &s) { launch_mix(s.stream, s.a, s.b, N, 10); }},
    {"hipMemcpy2DAsync, pageable to device",
     [](Side &s) {
       Bytes source = pattern(WIDTH * ROWS, 11);
       CHECK(hipMemcpy2DAsync(s.a, PITCH, source.data(), WIDTH, WIDTH, ROWS, hipMemcpyHostToDevice, s.stream));
       source.assign(source.size(), 0xEE);
     }},
    {"hipMemcpy2DAsync, device to device",
     [](Side &s) {
       CHECK(hipMemcpy2DAsync(s.b, PITCH, s.a, PITCH * 2, WIDTH, ROWS, hipMemcpyDeviceToDevice, s.stream));
     }},
    {"hipMemcpy2DAsync, device to pinned",
     [](Side &s) {
       CHECK(hipMemcpy2DAsync(s.pinned, WIDTH, s.b, PITCH, WIDTH, ROWS, hipMemcpyDeviceToHost, s.stream));
     }},
    {"hipLaunchKernel again", [](Side &s) { launch_mix(s.stream, s.b, s.a, N, 12); }},
    {"hipMemcpy3DAsync, pageable to device",
     [](Side &s) {
       Bytes source = pattern(64 * 6 * 4, 13);
       hipMemcpy3DParms p = {};
       p.srcPtr = make_hipPitchedPtr(source.data(), 64, 64, 6);
       p.srcPos = make_hipPos(4, 1, 1);
       p.dstPtr = make_hipPitchedPtr(s.a, 96, 96, 8);
       p.dstPos = make_hipPos(8, 2, 3);
       p.extent = make_hipExtent(60, 5, 3);
       p.kind = hipMemcpyHostToDevice;
       CHECK(hipMemcpy3DAsync(&p, s.stream));
       source.assign(source.size(), 0xEE);
       memset(&p, 0xEE, sizeof p);
     }},
    {"hipMemcpyParam2DAsync, pinned to device",
     [](Side &s) {
       hip_Memcpy2D p = {};
       p.srcMemoryType = hipMemoryTypeHost;
       p.srcHost = s.pinned;
       p.srcPitch = WIDTH;
       p.dstMemoryType = hipMemoryTypeDevice;
       p.dstDevice = s.b;
       p.dstPitch = PITCH;
       p.dstXInBytes = 16;
       p.dstY = 3;
       p.WidthInBytes = WIDTH - 8;
       p.Height = 7;
       CHECK(hipMemcpyParam2DAsync(&p, s.stream));
       memset(&p, 0xEE, sizeof p);
     }},
    {"hipMemcpyToSymbolAsync",
     [](Side &s) {
       Words source = pattern_words(TABLE, 14);
       CHECK(hipMemcpyToSymbolAsync(HIP_SYMBOL(table), source.data(), TABLE * 4, 16, hipMemcpyHostToDevice,
                                    s.stream));
       source.assign(TABLE, 0);
     }},
    {"hipMemcpyFromSymbolAsync",
     [](Side &s) {
       CHECK(hipMemcpyFromSymbolAsync(s.at(s.a, 4096), HIP_SYMBOL(table), TABLE * 4, 16,
                                      hipMemcpyDeviceToDevice, s.stream));
     }},
    {"hipMemset2DAsync", [](Side &s) { CHECK(hipMemset2DAsync(s.b, PITCH, 0x5A, 100, 9, s.stream)); }},
    {"hipMemset3DAsync",
     [](Side &s) {
       CHECK(hipMemset3DAsync(make_hipPitchedPtr(s.at(s.b, 8192), 128, 128, 6), 0xA5, make_hipExtent(77, 4, 3),
                              s.stream));
     }},
    {"hipMemcpyPeerAsync",
     [](Side &s) { CHECK(hipMemcpyPeerAsync(s.at(s.a, 512), 0, s.at(s.b, 1024), 0, 2048, s.stream)); }},
    {"hipStreamWriteValue32", [](Side &s) { CHECK(hipStreamWriteValue32(s.stream, s.a, 77, 0)); }},
    {"hipStreamWriteValue64", [](Side &s) { CHECK(hipStreamWriteValue64(s.stream, s.a + 1, 1ull << 40, 0)); }},
    {"hipStreamWaitValue32",
     [](Side &s) { CHECK(hipStreamWaitValue32(s.stream, s.a, 77, hipStreamWaitValueEq, 0xFFFFFFFF)); }},
    {"hipStreamWaitValue64",
     [](Side &s) { CHECK(hipStreamWaitValue64(s.stream, s.a + 1, 5, hipStreamWaitValueGte, ~0ull)); }},
    {"hipMallocAsync",
     [](Side &s) {
       CHECK(hipMallocAsync((void **)&s.block, N * 8, s.stream));
       REQUIRE(s.block != nullptr, "no memory");
       CHECK(hipMemcpyDtoDAsync(s.block, s.a, N * 8, s.stream));
       launch_mix(s.stream, s.block, s.b, N, 15);
       CHECK(hipMemcpyDtoDAsync(s.b, s.block, N * 8, s.stream));
     }},
    {"hipFreeAsync", [](Side &s) { CHECK(hipFreeAsync(s.block, s.stream)); }},
    {"hipMallocAsync of what the stream has given back",
     [](Side &s) {
       gw_u64 *again = nullptr;
       CHECK(hipMallocAsync((void **)&again, N * 8, s.stream));
       REQUIRE(again == s.block || !s.suspended, "another block");
       CHECK(hipMemsetAsync(again, 0x11, N * 8, s.stream));
       launch_mix(s.stream, s.a, again, N, 16);
       CHECK(hipFreeAsync(again, s.stream));
     }},
    {"hipGraphInstantiate", [](Side &s) { s.exec = instantiated(s, 17); }},
    {"hipGraphLaunch", [](Side &s) { CHECK(hipGraphLaunch(s.exec, s.stream)); }},
    {"hipGraphLaunch again", [](Side &s) { CHECK(hipGraphLaunch(s.exec, s.stream)); }},
    {"hipGraphExecDestroy", [](Side &s) { CHECK(hipGraphExecDestroy(s.exec)); }},
    {"hipLaunchByPtr",
     [](Side &s) {
       gw_u32 count = N;
       gw_u64 value = 18;
       CHECK(hipConfigureCall(dim3(N / 256), dim3(256), 0, s.stream));
       CHECK(hipSetupArgument(&s.a, 8, 0));
       CHECK(hipSetupArgument(&s.b, 8, 8));
       CHECK(hipSetupArgument(&count, 4, 16));
       CHECK(hipSetupArgument(&value, 8, 24));
       CHECK(hipLaunchByPtr((const void *)mix));
     }},
    {"hipLaunchCooperativeKernel",
     [](Side &s) {
       gw_u32 count = N;
       gw_u64 value = 19;
       void *arguments[] = {&s.b, &s.a, &count, &value};
       CHECK(hipLaunchCooperativeKernel((void *)mix, dim3(N / 256), dim3(256), arguments, 0, s.stream));
     }},
};

/* What the memory of a side holds, read on another stream. */
static gw_u64 digest_of(const Side &side, hipStream_t other) {
  static gw_u64 *staging = nullptr; /* never freed: a free waits for all that is pending */
  if (staging == nullptr) CHECK(hipHostMalloc((void **)&staging, 2 * N * 8, 0));
  CHECK(hipMemcpyAsync(staging, side.a, N * 8, hipMemcpyDeviceToHost, other));
  CHECK(hipMemcpyAsync(staging + N, side.b, N * 8, hipMemcpyDeviceToHost, other));
  CHECK(hipStreamSynchronize(other));
  Digest digest;
  digest.add(staging, 2 * N * 8);
  digest.add(side.pinned, N * 8);
  return digest.value;
}

/* Long enough for anything that could run to have run. */
static void let_others_run(hipStream_t other) {
  for (int i = 0; i < 10; i++) {
    launch_busy(other, 2 * MS);
    CHECK(hipStreamSynchronize(other));
  }
}

/* A call returns only after the resumption. */
static void waits_for(XQueueHandle xq, hipStream_t other, const char *what, const std::function<void()> &call) {
  printf("%s: waits\n", what);
  std::atomic<bool> returned(false);
  std::thread caller([&] {
    call();
    returned = true;
  });
  let_others_run(other);
  REQUIRE(!returned, "%s has not waited", what);
  FINE(XQueueResume(xq, 0));
  caller.join();
}

int main() {
  hipStream_t other;
  CHECK(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  /* First the one that is not suspended: the runtime says what it takes. */
  Side plain, held;
  HwQueueHandle hwq = 0, plain_hwq = 0;
  XQueueHandle xq = 0, plain_xq = 0;
  FINE(HipQueueCreate(&hwq, held.stream));
  FINE(XQueueCreate(&xq, hwq, kPreemptLevelBlock, 0));
  FINE(HipQueueCreate(&plain_hwq, plain.stream));
  FINE(XQueueCreate(&plain_xq, plain_hwq, kPreemptLevelBlock, 0));
  for (const Step &step : STEPS) {
    /* A cooperative launch is deferred if one like it was taken in its turn before: so it is held for a moment. */
    bool cooperative = std::string(step.name) == "hipLaunchCooperativeKernel";
    std::thread releases;
    if (cooperative) {
      FINE(XQueueSuspend(plain_xq, 0));
      launch_busy(plain.stream, MS);
      releases = std::thread([&] {
        let_others_run(other);
        FINE(XQueueResume(plain_xq, 0));
      });
    }
    step.call(plain);
    if (cooperative) releases.join();
    CHECK(hipStreamSynchronize(plain.stream));
  }
  const gw_u64 want = digest_of(plain, other);

  const gw_u64 before = digest_of(held, other);
  FINE(XQueueSuspend(xq, 0));
  held.suspended = true;
  for (const Step &step : STEPS) {
    printf("%s\n", step.name);
    step.call(held);
    REQUIRE(digest_of(held, other) == before, "%s was launched though its queue is suspended", step.name);
  }
  let_others_run(other);
  REQUIRE(digest_of(held, other) == before, "something was launched though the queue is suspended");
  EXPECT(hipStreamQuery(held.stream), hipErrorNotReady);

  printf("what concerns others does not wait\n");
  hipGraphExec_t fresh = instantiated(plain, 30);
  CHECK(hipGraphLaunch(fresh, plain.stream));
  hipGraph_t newer = captured(plain, 31);
  hipGraphNode_t node;
  hipGraphExecUpdateResult result;
  CHECK(hipGraphExecUpdate(fresh, newer, &node, &result));
  CHECK(hipGraphLaunch(fresh, plain.stream));
  CHECK(hipStreamSynchronize(plain.stream));
  CHECK(hipGraphExecDestroy(fresh));
  CHECK(hipGraphDestroy(newer));
  gw_u64 *block = nullptr;
  CHECK(hipMallocAsync((void **)&block, 4096, other));
  CHECK(hipMemset2DAsync(block, 64, 1, 64, 64, other));
  CHECK(hipFreeAsync(block, other));
  CHECK(hipStreamWriteValue32(other, plain.a, 1, 0));
  CHECK(hipStreamSynchronize(other));

  FINE(XQueueResume(xq, 0));
  CHECK(hipStreamSynchronize(held.stream));
  REQUIRE(digest_of(held, other) == want, "the calls happened otherwise than in order");

  /* A change of a graph waits for the launches before it, and only later ones see it. */
  hipGraphExec_t exec = instantiated(held, 40), same = instantiated(plain, 40);
  CHECK(hipMemcpyDtoDAsync(plain.a, held.a, N * 8, held.stream));
  CHECK(hipMemcpyDtoDAsync(plain.b, held.b, N * 8, held.stream));
  CHECK(hipStreamSynchronize(held.stream));
  FINE(XQueueSuspend(xq, 0));
  CHECK(hipGraphLaunch(exec, held.stream));
  hipGraph_t changed = captured(held, 50), changed_same = captured(plain, 50);
  waits_for(xq, other, "hipGraphExecUpdate", [&] { CHECK(hipGraphExecUpdate(exec, changed, &node, &result)); });
  CHECK(hipGraphLaunch(exec, held.stream));
  CHECK(hipStreamSynchronize(held.stream));
  CHECK(hipGraphLaunch(same, plain.stream));
  CHECK(hipStreamSynchronize(plain.stream));
  CHECK(hipGraphExecUpdate(same, changed_same, &node, &result));
  CHECK(hipGraphLaunch(same, plain.stream));
  CHECK(hipStreamSynchronize(plain.stream));
  SAME_WORDS(held.a, read_words(plain.a, N), "a graph before and after its change");
  SAME_WORDS(held.b, read_words(plain.b, N), "a graph before and after its change");

  /* What a pool tells counts what was given back. */
  hipMemPool_t pool;
  CHECK(hipDeviceGetMemPool(&pool, 0));
  uint64_t used = 0, used_before = 0;
  CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used_before));
  CHECK(hipMallocAsync((void **)&block, 1 << 20, held.stream));
  FINE(XQueueSuspend(xq, 0));
  launch_mix(held.stream, block, block, 16, 1);
  CHECK(hipFreeAsync(block, held.stream));
  waits_for(xq, other, "hipMemPoolGetAttribute",
            [&] { CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used)); });
  REQUIRE(used == used_before, "%llu bytes are in use instead of %llu", (unsigned long long)used,
          (unsigned long long)used_before);
  CHECK(hipStreamSynchronize(held.stream));

  /* What the runtime refuses it refuses in the call, however much is pending. */
  FINE(XQueueSuspend(xq, 0));
  launch_mix(held.stream, held.a, held.a, N, 1);
  FINE(XQueueResume(xq, 0));
  EXPECT(hipMemcpy2DAsync(held.a, 8, held.b, 16, 16, 2, hipMemcpyDeviceToDevice, held.stream),
         hipErrorInvalidPitchValue);
  EXPECT(hipStreamWriteValue32(held.stream, nullptr, 1, 0), hipErrorInvalidValue);
  EXPECT(hipGraphLaunch(nullptr, held.stream), hipErrorInvalidValue);
  EXPECT(hipMemcpyPeerAsync(held.a, 7, held.b, 0, 8, held.stream), hipErrorInvalidDevice);
  EXPECT(hipFreeAsync(nullptr, held.stream), hipErrorInvalidValue);
  CHECK(hipStreamSynchronize(held.stream));
  return passed();
}
