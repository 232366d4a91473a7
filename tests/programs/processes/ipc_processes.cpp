// run: plain
/* Handles of memory and events in another process, and what is no handle, or of nothing, in this one. */
#include "processes.h"
#include "work.h"

template <typename T> static std::string text_of(const T &handle) {
  std::string text;
  char part[3];
  for (size_t i = 0; i < sizeof handle; i++) {
    snprintf(part, sizeof part, "%02x", ((const unsigned char *)&handle)[i]);
    text += part;
  }
  return text;
}

template <typename T> static T handle_of(const char *text) {
  T handle;
  memset(&handle, 0, sizeof handle);
  for (size_t i = 0; i < sizeof handle && text[2 * i]; i++) {
    unsigned byte = 0;
    REQUIRE(sscanf(text + 2 * i, "%2x", &byte) == 1, "no handle: %s", text);
    ((unsigned char *)&handle)[i] = (unsigned char)byte;
  }
  return handle;
}

/* Words of the memory that both have, and what they are. */
static const size_t SHARED = 1000;
static const gw_u64 SEED = 9;

/* The other process: opens both, with work of its own pending. */
static int other(const char *memory_text, const char *event_text) {
  hipStream_t stream = new_stream();
  Sum sum(2);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 20 * MS);
  sum.launch(stream, 5);
  /* The other process's memory: read, changed by a kernel, and given back. */
  void *opened = nullptr;
  show("memory", hipIpcOpenMemHandle(&opened, handle_of<hipIpcMemHandle_t>(memory_text), hipIpcMemLazyEnablePeerAccess));
  if (opened != nullptr) {
    Words words = pattern_words(SHARED, SEED);
    SAME_WORDS((gw_u64 *)opened, words, "the memory of the other process");
    launch_mix(stream, (gw_u64 *)opened, sum.device, SHARED, 7);
    CHECK(hipStreamSynchronize(stream));
    cpu_mix(words, sum.want, 7);
    SAME_WORDS((gw_u64 *)opened, words, "the memory of the other process, changed");
    show("closed", hipIpcCloseMemHandle(opened));
  }
  hipEvent_t event = nullptr;
  hipError_t code = hipIpcOpenEventHandle(&event, handle_of<hipIpcEventHandle_t>(event_text));
  show("event", code);
  if (code == hipSuccess) {
    show("its query", hipEventQuery(event));
    show("its synchronization", hipEventSynchronize(event));
    show("a wait for it", hipStreamWaitEvent(stream, event, 0));
    sum.launch(stream, 5);
    show("destroyed", hipEventDestroy(event));
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the other process's work"));
  puts("end");
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 2) return other(argv[1], argv[2]);
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventInterprocess | hipEventDisableTiming));
  sum.launch(stream, 5);
  CHECK(hipEventRecord(event, stream));
  CHECK(hipEventSynchronize(event));
  hipIpcEventHandle_t event_handle;
  memset(&event_handle, 0, sizeof event_handle);
  show("the event's handle", hipIpcGetEventHandle(&event_handle, event));
  hipIpcMemHandle_t memory_handle, nothing;
  memset(&memory_handle, 0, sizeof memory_handle);
  memset(&nothing, 0, sizeof nothing);
  void *opened = nullptr;
  Words words = pattern_words(SHARED, SEED);
  gw_u64 *shared = device_words(words);
  launch_busy(stream, 20 * MS);
  sum.launch(stream, 5);
  show("the memory's handle", hipIpcGetMemHandle(&memory_handle, shared));
  show("into nothing", hipIpcGetMemHandle(nullptr, sum.device));
  show("of nothing", hipIpcGetMemHandle(&nothing, nullptr));
  show("no handle opened", hipIpcOpenMemHandle(&opened, nothing, hipIpcMemLazyEnablePeerAccess));
  show("with no flag", hipIpcOpenMemHandle(&opened, nothing, 0));
  show("into no place", hipIpcOpenMemHandle(nullptr, nothing, hipIpcMemLazyEnablePeerAccess));
  show("nothing closed", hipIpcCloseMemHandle(nullptr));
  hipEvent_t none = nullptr;
  hipIpcEventHandle_t no_event;
  memset(&no_event, 0, sizeof no_event);
  show("no event opened", hipIpcOpenEventHandle(&none, no_event));
  show("an event into no place", hipIpcOpenEventHandle(nullptr, event_handle));
  (void)opened;
  Child child = start_self({text_of(memory_handle), text_of(event_handle)});
  for (std::string line; (line = child.line()) != "end" && line != "(end of output)";) printf("other: %s\n", line.c_str());
  printf("other: ended with %d\n", child.end());
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("this process's work"));
  /* What the other process has made of the memory: mixed it with its own work, which was five kernels by then. */
  Words others = pattern_words(SHARED, 2);
  for (gw_u64 i = 0; i < 5; i++) cpu_mix(others, others, i);
  cpu_mix(words, others, 7);
  SAME_WORDS(shared, words, "the memory that both had");
  CHECK(hipFree(shared));
  CHECK(hipEventDestroy(event));
  return passed();
}
