// run: plain
/* IPC events and memory: what the runtime says to handles of each, in this process, and to wrong ones. */
#include "check.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  const size_t n = 512;
  Words want = pattern_words(n, 5);
  gw_u64 *data = device_words(want);
  hipEvent_t plain, shared = nullptr, opened = nullptr;
  CHECK(hipEventCreate(&plain));
  show("interprocess with timing", hipEventCreateWithFlags(&shared, hipEventInterprocess));
  hipError_t made = hipEventCreateWithFlags(&shared, hipEventInterprocess | hipEventDisableTiming);
  show("interprocess", made);
  hipIpcEventHandle_t handle;
  memset(&handle, 0, sizeof handle);
  show("the handle of a plain event", hipIpcGetEventHandle(&handle, plain));
  show("into nothing", hipIpcGetEventHandle(nullptr, plain));
  if (made == hipSuccess) {
    show("a query before any record", hipEventQuery(shared));
    launch_mix(stream, data, data, n, 1);
    cpu_mix(want, want, 1);
    show("a record", hipEventRecord(shared, stream));
    show("its handle", hipIpcGetEventHandle(&handle, shared));
    show("a synchronization", hipEventSynchronize(shared));
    show("a query", hipEventQuery(shared));
    show("a wait", hipStreamWaitEvent(stream, shared, 0));
    launch_mix(stream, data, data, n, 2);
    cpu_mix(want, want, 2);
    show("the handle opened where it was made", hipIpcOpenEventHandle(&opened, handle));
  }
  hipIpcMemHandle_t memory;
  memset(&memory, 0, sizeof memory);
  show("the handle of memory", hipIpcGetMemHandle(&memory, data));
  show("of no memory", hipIpcGetMemHandle(&memory, &memory));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "the work around");
  printf("%016llx\n", digest_of(want));
  return passed();
}
