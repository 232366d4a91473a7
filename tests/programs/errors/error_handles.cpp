// run: plain
/* Handles of every kind that are null or gone, in every call that takes one (where the runtime looks at them). */
#include "check.h"

int main() {
  hipStream_t stream, gone;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipStreamCreate(&gone));
  CHECK(hipStreamDestroy(gone));
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  size_t n = 64;
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  launch_mix(stream, data, data, n, 1);
  cpu_mix(want, want, 1);
  float ms = 0;
  void *p = nullptr;
  [[maybe_unused]] unsigned flags = 0;
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  hipPointerAttribute_t attributes;
  memset((void *)&attributes, 0, sizeof attributes);
#if HIP_VERSION_MAJOR < 7 /* from 7.0 on the runtime takes any handle for a stream, and crashes */
  show("synchronize a stream that is gone", hipStreamSynchronize(gone));
  show("query it", hipStreamQuery(gone));
  show("destroy it again", hipStreamDestroy(gone));
  show("wait in it", hipStreamWaitEvent(gone, event, 0));
  show("call back in it", hipStreamAddCallback(gone, [](hipStream_t, hipError_t, void *) {}, nullptr, 0));
  show("its flags", hipStreamGetFlags(gone, &flags));
#endif
  show("no event", hipEventRecord(nullptr, stream));
  show("no event to query", hipEventQuery(nullptr));
  show("no event to wait for", hipEventSynchronize(nullptr));
  show("no event to destroy", hipEventDestroy(nullptr));
  show("no times", hipEventElapsedTime(&ms, nullptr, nullptr));
  show("no place for an event", hipEventCreate(nullptr));
  show("no callback", hipStreamAddCallback(stream, nullptr, nullptr, 0));
  show("callback flags", hipStreamAddCallback(stream, [](hipStream_t, hipError_t, void *) {}, nullptr, 7));
  show("no module to unload", hipModuleUnload(nullptr));
  show("no module to look into", hipModuleGetFunction(&function, nullptr, "mix"));
  show("no file", hipModuleLoad(&module, "/nonexistent"));
  show("no address", hipPointerGetAttributes(&attributes, nullptr));
  show("an address of the host", hipPointerGetAttributes(&attributes, &n));
  show("no size", hipMalloc(&p, 0));
  show("too much", hipMalloc(&p, ~size_t(0)));
  show("no registered memory", hipHostUnregister(&n));
  show("nothing to register", hipHostRegister(nullptr, 16, 0));
  show("no host memory", hipHostFree(&n));
  show("free no memory", hipFree(&n));
  show("free inside of memory", hipFree((char *)data + 8));
  show("device memory as the host's", hipHostFree(data));
  show("no array", hipFreeArray(nullptr));
  show("no graph", hipGraphDestroy(nullptr));
  show("no graph to launch", hipGraphLaunch(nullptr, stream));
  show("no graph to execute", hipGraphExecDestroy(nullptr));
  show("no capture", hipStreamEndCapture(stream, nullptr));
  show("no device", hipSetDevice(-1));
  show("the end", hipStreamSynchronize(stream));
  data = device_words(want);
  printf("%016llx\n", digest_of(want));
  return passed();
}
