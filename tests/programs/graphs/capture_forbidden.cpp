// run: plain
/* What is forbidden during a capture, in each mode: what each call returns, what it leaves of the capture, and that work
 * goes on as usual afterwards. */
#include <functional>

#include "capture.h"

struct Forbidden {
  const char *name;
  std::function<hipError_t()> call;
};

int main() {
  hipStream_t stream = new_stream(), other = new_stream(), blocking = new_stream(hipStreamDefault);
  hipEvent_t event = new_event(), idle = new_event();
  CHECK(hipEventRecord(idle, other));
  CHECK(hipStreamSynchronize(other));
  gw_u64 *device = device_alloc<gw_u64>(64);
  gw_u64 host[64] = {};
  void *pinned = nullptr;
  CHECK(hipHostMalloc(&pinned, 512, hipHostMallocDefault));
  CHECK(hipMemset(device, 0, 512));
  CHECK(hipDeviceSynchronize());
  int low = 0, high = 0, number = 0;
  hipStreamCaptureStatus status;
  void *allocated = nullptr, *allocated_host = nullptr;

  std::vector<Forbidden> calls = {
      {"hipDeviceSynchronize", [&] { return hipDeviceSynchronize(); }},
      {"hipStreamSynchronize of the capture", [&] { return hipStreamSynchronize(stream); }},
      {"hipStreamSynchronize of another", [&] { return hipStreamSynchronize(other); }},
      {"hipStreamSynchronize of the default", [&] { return hipStreamSynchronize(nullptr); }},
      {"hipStreamQuery of the capture", [&] { return hipStreamQuery(stream); }},
      {"hipStreamQuery of another", [&] { return hipStreamQuery(other); }},
      {"hipStreamQuery of the default", [&] { return hipStreamQuery(nullptr); }},
      {"hipEventQuery", [&] { return hipEventQuery(idle); }},
      {"hipEventSynchronize", [&] { return hipEventSynchronize(idle); }},
      {"hipEventRecord elsewhere", [&] { return hipEventRecord(event, other); }},
      {"hipStreamWaitEvent elsewhere", [&] { return hipStreamWaitEvent(other, idle, 0); }},
      {"hipMemcpy to the device", [&] { return hipMemcpy(device, host, 512, hipMemcpyHostToDevice); }},
      {"hipMemcpy to the host", [&] { return hipMemcpy(host, device, 512, hipMemcpyDeviceToHost); }},
      {"hipMemset", [&] { return hipMemset(device, 0, 512); }},
      {"hipMemcpyAsync elsewhere", [&] { return hipMemcpyAsync(device, pinned, 512, hipMemcpyHostToDevice, other); }},
      {"hipMemsetAsync elsewhere", [&] { return hipMemsetAsync(device, 0, 512, other); }},
      {"hipMalloc", [&] { return hipMalloc(&allocated, 4096); }},
      {"hipHostMalloc", [&] { return hipHostMalloc(&allocated_host, 4096, hipHostMallocDefault); }},
      {"hipFree of nothing", [&] { return hipFree(nullptr); }},
      {"hipStreamBeginCapture again", [&] { return hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed); }},
      {"hipStreamBeginCapture elsewhere, and its end",
       [&] {
         hipGraph_t graph = nullptr;
         hipError_t code = hipStreamBeginCapture(other, hipStreamCaptureModeRelaxed);
         if (code != hipSuccess) return code;
         code = hipStreamEndCapture(other, &graph);
         if (code == hipSuccess) CHECK(hipGraphDestroy(graph));
         return code;
       }},
      {"hipStreamBeginCapture of the default",
       [&] { return hipStreamBeginCapture(nullptr, hipStreamCaptureModeRelaxed); }},
      {"hipStreamIsCapturing elsewhere", [&] { return hipStreamIsCapturing(other, &status); }},
      {"hipStreamIsCapturing of the default", [&] { return hipStreamIsCapturing(nullptr, &status); }},
      {"hipDeviceGetStreamPriorityRange", [&] { return hipDeviceGetStreamPriorityRange(&low, &high); }},
      {"hipGetDevice", [&] { return hipGetDevice(&number); }},
      {"hipStreamAddCallback",
       [&] { return hipStreamAddCallback(stream, [](hipStream_t, hipError_t, void *) {}, nullptr, 0); }},
  };
  for (auto mode : MODES) {
    for (auto &forbidden : calls) {
      printf("%s, %s\n", mode_name(mode), forbidden.name);
      CHECK(hipStreamBeginCapture(stream, mode));
      launch_mix(stream, device, device, 64, 1);
      hipError_t code = forbidden.call();
      printf("  returns %s, capture %s, elsewhere %s\n", hipGetErrorName(code), status_of(stream), status_of(other));
      end_of_capture(stream);
      printf("  last error %s\n", hipGetErrorName(hipGetLastError()));
      stream = next_for_capture(stream);
      CHECK(hipDeviceSynchronize());
    }
  }
  Sum sum(1);
  for (hipStream_t each : {stream, other, blocking}) {
    sum.launch(each, 5);
    CHECK(hipStreamSynchronize(each));
  }
  printf("afterwards %016llx\n", sum.check("after all of it"));
  return passed();
}
