// loaded: library
/* An interposer to be preloaded: it counts the ends of streams that begin while another thread makes a wait for an event. Such a
 * wait stays here for a moment. */
#include <chrono>
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

enum { WAITS, OVERLAPS, COUNTS };
static int counts[COUNTS];
static int inside;

extern "C" int interposed(int which) { return __atomic_load_n(&counts[which], __ATOMIC_SEQ_CST); }

extern "C" hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  auto next = (decltype(&hipStreamWaitEvent))dlsym(RTLD_NEXT, "hipStreamWaitEvent");
  __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&counts[WAITS], 1, __ATOMIC_SEQ_CST);
  int overlaps = interposed(OVERLAPS);
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  while (interposed(OVERLAPS) == overlaps && std::chrono::steady_clock::now() < until);
  hipError_t code = next(stream, event, flags);
  __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
  return code;
}

extern "C" hipError_t hipStreamDestroy(hipStream_t stream) {
  auto next = (decltype(&hipStreamDestroy))dlsym(RTLD_NEXT, "hipStreamDestroy");
  if (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) != 0) __atomic_fetch_add(&counts[OVERLAPS], 1, __ATOMIC_SEQ_CST);
  return next(stream);
}
