/* Work by functions that were found by name only, with kernels of a code object. */
#ifndef GIVEWAY_TESTS_BY_NAME_H
#define GIVEWAY_TESTS_BY_NAME_H

#include <dlfcn.h>

/* check.h names errors by this function, which a program that is not linked with HIP lacks. */
#define hipGetErrorName by_name_error
#include "check.h"

extern "C" const char *by_name_error(hipError_t error) {
  static char text[24];
  snprintf(text, sizeof text, "error %d", (int)error);
  return text;
}

static const char EXT[] =
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j";
static const char HCC[] =
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_";

typedef void *(*LookUp)(const char *name);

/* The function of this name in the type that the header gives it. */
#define FOUND(look_up, name) ((decltype(&name))found_at((look_up), #name))

static inline void *found_at(LookUp look_up, const char *name) {
  void *found = look_up(name);
  if (found == nullptr) fail_at(__FILE_NAME__, __LINE__, name, "not found: %s", dlerror());
  return found;
}

/* How a kernel is launched. */
enum Way { PLAIN, EXT_MODULE, HCC_MODULE };

static inline void work_by_name(LookUp look_up, const char *code_object, Way way = PLAIN) {
  auto load = FOUND(look_up, hipModuleLoad);
  auto get_function = FOUND(look_up, hipModuleGetFunction);
  auto launch = FOUND(look_up, hipModuleLaunchKernel);
  auto copy = FOUND(look_up, hipMemcpyAsync);
  auto create = FOUND(look_up, hipStreamCreateWithFlags);
  auto destroy = FOUND(look_up, hipStreamDestroy);
  auto synchronize = FOUND(look_up, hipStreamSynchronize);
  auto record = FOUND(look_up, hipEventRecord);
  auto event_create = FOUND(look_up, hipEventCreateWithFlags);
  auto wait = FOUND(look_up, hipStreamWaitEvent);
  /* The header makes templates of these two as well. */
  auto allocate = (hipError_t (*)(void **, size_t))found_at(look_up, "hipMalloc");
  auto allocate_host = (hipError_t (*)(void **, size_t, unsigned))found_at(look_up, "hipHostMalloc");
  typedef hipError_t (*ExtLaunch)(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, size_t,
                                  hipStream_t, void **, void **, hipEvent_t, hipEvent_t, unsigned);
  auto ext = (ExtLaunch)found_at(look_up, way == HCC_MODULE ? HCC : EXT);

  const size_t n = 900, bytes = n * sizeof(gw_u64);
  hipModule_t module;
  hipFunction_t mix_function;
  hipStream_t stream, other;
  hipEvent_t event;
  void *device = nullptr, *host = nullptr;
  CHECK(load(&module, code_object));
  CHECK(get_function(&mix_function, module, "mix"));
  CHECK(create(&stream, hipStreamNonBlocking));
  CHECK(create(&other, hipStreamNonBlocking));
  CHECK(event_create(&event, hipEventDisableTiming));
  CHECK(allocate(&device, bytes));
  CHECK(allocate_host(&host, bytes, 0));
  Words want = pattern_words(n, 3);
  memcpy(host, want.data(), bytes);
  CHECK(copy(device, host, bytes, hipMemcpyHostToDevice, stream));
  for (gw_u64 i = 0; i < 30; i++) {
    gw_u64 *words = (gw_u64 *)device;
    gw_u32 count = (gw_u32)n;
    void *arguments[] = {&words, &words, &count, &i};
    hipStream_t here = i % 2 ? other : stream, there = i % 2 ? stream : other;
    if (way == PLAIN) CHECK(launch(mix_function, 4, 1, 1, 256, 1, 1, 0, here, arguments, nullptr));
    /* These count work-items. The last argument is one that the older function does not have. */
    else CHECK(ext(mix_function, 1024, 1, 1, 256, 1, 1, 0, here, arguments, nullptr, nullptr, nullptr, 0));
    cpu_mix(want, want, i);
    CHECK(record(event, here));
    CHECK(wait(there, event, 0));
  }
  CHECK(copy(host, device, bytes, hipMemcpyDeviceToHost, stream));
  CHECK(synchronize(stream));
  SAME(host, want.data(), bytes, "work by name");
  printf("%016llx\n", digest_of(want));
  CHECK(destroy(stream));
  CHECK(destroy(other));
}

#endif
