// run: plain
/* Calls that the runtime refuses by what they are given, each behind work on its stream: refused at once, with the same code,
 * whether that work is launched or not. What the runtime takes all the same is here too. */
#include "check.h"

static hipStream_t s;

/* The call, the last error behind it, and what comes of the stream. */
#define ROW(call)                                                                                   \
  do {                                                                                              \
    launch_busy(s, 1000);                                                                           \
    hipError_t said = (call), last = hipGetLastError();                                             \
    hipError_t synced = hipStreamSynchronize(s), after = hipGetLastError();                         \
    printf("%s: %s, last %d; then %d, last %d\n", #call, hipGetErrorName(said), (int)last, (int)synced, \
           (int)after);                                                                             \
  } while (0)

static void none(hipStream_t, hipError_t, void *) {}

int main() {
  const size_t MORE = 1 << 20, SIZE = 1 << 16;
  CHECK(hipStreamCreate(&s));
  char *d = device_alloc<char>(SIZE), *h;
  CHECK(hipHostMalloc((void **)&h, SIZE, 0));
  std::vector<char> memory(SIZE);
  char *p = memory.data();
  hipEvent_t e;
  CHECK(hipEventCreate(&e));
  auto at = [](void *address) { return (hipDeviceptr_t)address; };
  launch_busy(s, 1000);
  CHECK(hipStreamSynchronize(s));

  ROW(hipMemcpyAsync(nullptr, h, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, nullptr, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, h, 64, (hipMemcpyKind)77, s));
  ROW(hipMemcpyAsync(d, h, MORE, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(h, d, MORE, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyAsync(d + SIZE - 6, h, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, d + SIZE - 6, 64, hipMemcpyDeviceToDevice, s));
  ROW(hipMemcpyAsync(d, p, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyHtoDAsync(at(d), nullptr, 64, s));
  ROW(hipMemcpyDtoDAsync(at(d), at(d + SIZE - 6), 64, s));
  ROW(hipMemcpyWithStream(d, h, MORE, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyWithStream(d, h, 64, (hipMemcpyKind)77, s));
  ROW(hipMemcpy2DAsync(d, 32, h, 64, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 32, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 64, 64, 4096, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 64, 0, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemsetAsync(nullptr, 1, 64, s));
  ROW(hipMemsetAsync(d, 1, MORE, s));
  ROW(hipMemsetAsync(d + SIZE - 6, 1, 64, s));
  ROW(hipMemsetAsync(p, 1, 64, s));
  ROW(hipMemsetAsync(d, 1, 0, s));
  ROW(hipMemsetD8Async(at(d), 1, MORE, s));
  ROW(hipMemset2DAsync(d, 32, 1, 64, 4, s));
  ROW(hipMemset2DAsync(d, 1024, 1, 64, 4096, s));
  hipPitchedPtr pitched = make_hipPitchedPtr(d, 32, 64, 4);
  ROW(hipMemset3DAsync(pitched, 1, make_hipExtent(64, 4, 4), s));
  hipMemcpy3DParms slices{};
  ROW(hipMemcpy3DAsync(nullptr, s));
  ROW(hipMemcpy3DAsync(&slices, s));
  slices.srcPtr = make_hipPitchedPtr(h, 64, 64, 4), slices.dstPtr = pitched;
  slices.extent = make_hipExtent(64, 4, 1), slices.kind = hipMemcpyHostToDevice;
  ROW(hipMemcpy3DAsync(&slices, s));
  hip_Memcpy2D rows{};
  ROW(hipMemcpyParam2DAsync(&rows, s));
  ROW(hipMemcpyToSymbolAsync(nullptr, h, 4, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyPeerAsync(d, 0, h, 9, 64, s));

  ROW(hipEventRecord(nullptr, s));
  ROW(hipStreamWaitEvent(s, nullptr, 0));
  ROW(hipStreamWaitEvent(s, e, 99));
#if HIP_VERSION_MAJOR >= 7
  ROW(hipEventRecordWithFlags(e, s, 99));
  ROW(hipEventRecordWithFlags(nullptr, s, 0));
#endif
  ROW(hipStreamAddCallback(s, nullptr, nullptr, 0));
  ROW(hipStreamAddCallback(s, none, nullptr, 5));
  ROW(hipStreamWriteValue32(s, nullptr, 1, 0));
  ROW(hipStreamWriteValue64(s, p, 1, 0));
  ROW(hipStreamWriteValue32(s, d, 1, 7));
  ROW(hipStreamWaitValue32(s, nullptr, 1, 0, ~0u));
  ROW(hipStreamWaitValue32(s, d, 0, 9, ~0u));

  void *q = nullptr;
  ROW(hipFreeAsync(nullptr, s));
  ROW(hipFreeAsync(d + 5, s));
  ROW(hipMallocAsync(&q, 0, s));
  ROW(hipMallocAsync(nullptr, 64, s));
  ROW(hipMallocAsync(&q, 1ull << 50, s));
  ROW(hipMallocFromPoolAsync(&q, 64, nullptr, s));
  ROW(hipMemPrefetchAsync(p, 64, 99, s));
  ROW(hipMemPrefetchAsync(nullptr, 64, 0, s));
  ROW(hipStreamAttachMemAsync(s, nullptr, 0, 0));
  ROW(hipStreamAttachMemAsync(s, d, 0, 99));

  gw_u64 duration = 1000;
  gw_u32 rounds = 1;
  void *args[] = {&duration, &rounds}, *kernel = (void *)busy;
  ROW(hipLaunchKernel(nullptr, dim3(1), dim3(1), nullptr, 0, s));
  ROW(hipLaunchKernel(kernel, dim3(0, 1, 1), dim3(1), args, 0, s));
  ROW(hipLaunchKernel(kernel, dim3(1), dim3(2048), args, 0, s));
  ROW(hipLaunchKernel(kernel, dim3(1), dim3(1), args, 1 << 20, s));
  ROW(hipLaunchCooperativeKernel(kernel, dim3(1 << 20), dim3(1024), args, 0, s));
  ROW(hipModuleLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s, args, nullptr));
  ROW(hipGraphLaunch(nullptr, s));
  hipGraph_t graph = nullptr;
  ROW(hipStreamEndCapture(s, nullptr));
  ROW(hipStreamEndCapture(s, &graph));
  ROW(hipStreamBeginCapture(s, (hipStreamCaptureMode)9));
  return passed();
}
