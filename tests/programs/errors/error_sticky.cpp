// run: from-hip 7 | slow-path
/* Once a kernel has reached for memory that is not there, every call says so, whether the library would defer it or not. Older
 * runtimes end the process. */
#include "work.h"

#include <functional>

static hipStream_t stream;
static hipEvent_t event;
static gw_u64 *data, *pinned;
static gw_u64 duration = 1000;
static gw_u32 rounds = 1;
static void *arguments[] = {&duration, &rounds};

struct Call {
  const char *name;
  std::function<hipError_t()> make;
};

static void none(void *) {}
static void called_back(hipStream_t, hipError_t, void *) {}

/* Each call, what the last error is behind it, and whether the stream says the same. */
static void show_all(const std::vector<Call> &calls) {
  for (const Call &call : calls) {
    const hipError_t said = call.make(), last = hipGetLastError(), synchronized = hipStreamSynchronize(stream);
    printf("%s: %s, last %d; then %d\n", call.name, hipGetErrorName(said), (int)last, (int)synchronized);
  }
}

int main() {
  stream = new_stream();
  event = new_event();
  data = device_alloc<gw_u64>(512);
  CHECK(hipHostMalloc((void **)&pinned, 4096, 0));
  gw_u64 *pool = nullptr;
  CHECK(hipMallocAsync((void **)&pool, 4096, stream));
  const void *kernel = (const void *)busy;
  hipFunction_t function;
  CHECK(hipGetFuncBySymbol(&function, kernel));
  hipGraph_t graph;
  hipGraphExec_t exec;
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
  launch_busy(stream, 1000);
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  hipLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  const std::vector<Call> calls = {
      {"launch", [=] { return hipLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream); }},
      {"launch with events", [=] { return hipExtLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream, event, event, 0); }},
      {"launch with its stop", [=] { return hipExtLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream, nullptr, event, 0); }},
      {"launch by a description", [=] { return hipLaunchKernelExC(&config, kernel, arguments); }},
      {"cooperative launch", [=] { return hipLaunchCooperativeKernel(kernel, dim3(1), dim3(1), arguments, 0, stream); }},
      {"launch of a module's", [=] { return hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr); }},
      {"graph", [=] { return hipGraphLaunch(exec, stream); }},
      {"copy", [] { return hipMemcpyAsync(data, pinned, 4096, hipMemcpyHostToDevice, stream); }},
      {"copy of rows", [] { return hipMemcpy2DAsync(data, 64, pinned, 64, 32, 4, hipMemcpyHostToDevice, stream); }},
      {"fill", [] { return hipMemsetAsync(data, 1, 4096, stream); }},
      {"fill of words", [] { return hipMemsetD32Async((hipDeviceptr_t)data, 1, 1024, stream); }},
      {"record", [] { return hipEventRecord(event, stream); }},
      {"record with flags", [] { return hipEventRecordWithFlags(event, stream, 0); }},
      {"wait", [] { return hipStreamWaitEvent(stream, event, 0); }},
      {"value", [] { return hipStreamWriteValue32(stream, pinned, 1, 0); }},
      {"wait for a value", [] { return hipStreamWaitValue32(stream, pinned, 1, hipStreamWaitValueGte, ~0u); }},
      {"host function", [] { return hipLaunchHostFunc(stream, none, nullptr); }},
      {"callback", [] { return hipStreamAddCallback(stream, called_back, nullptr, 0); }},
      {"return to a pool", [=] { return hipFreeAsync(pool, stream); }},
      {"query", [] { return hipStreamQuery(stream); }},
      {"query of an event", [] { return hipEventQuery(event); }},
  };
  /* The cooperative launch is known to fit when it was taken once. */
  CHECK(hipLaunchCooperativeKernel(kernel, dim3(1), dim3(1), arguments, 0, stream));
  CHECK(hipEventRecord(event, stream));
  CHECK(hipStreamSynchronize(stream));
  launch_mix(stream, (gw_u64 *)0x10000, data, 1, 1);
  show("the wrong address", hipStreamSynchronize(stream));
  show_all(calls);
  return passed();
}
