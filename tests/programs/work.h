/* Pieces of work whose result is known: a device array, the kernels that went over it, and what they must leave. */
#ifndef GIVEWAY_TESTS_WORK_H
#define GIVEWAY_TESTS_WORK_H

#include "check.h"

/* A device array with the words that it must hold once everything sent so far is done. */
struct Sum {
  gw_u64 *device;
  Words want;
  gw_u64 next = 0;

  explicit Sum(gw_u64 seed, size_t n = 1000) : want(pattern_words(n, seed)) { device = device_words(want); }

  /* So many kernels, each of which depends on the one before. */
  void launch(hipStream_t stream, int count) {
    for (int i = 0; i < count; i++, next++) {
      launch_mix(stream, device, device, want.size(), next);
      cpu_mix(want, want, next);
    }
  }

  /* What a graph does that was captured when `next` was `first`, and launches so many kernels. */
  void replayed(gw_u64 first, int count) {
    for (int i = 0; i < count; i++) cpu_mix(want, want, first + (gw_u64)i);
  }

  /* The array is right. Waits for nothing but its own copy. */
  gw_u64 check(const char *what) {
    SAME_WORDS(device, want, what);
    return digest_of(want);
  }

  void release() {
    CHECK(hipFree(device));
    device = nullptr;
  }
};

/* One piece of work from allocation to free on this stream. */
static inline gw_u64 whole_work(hipStream_t stream, gw_u64 seed, int count = 30) {
  Sum sum(seed);
  CHECK(hipStreamSynchronize(nullptr)); /* a stream that does not wait for the default one would overtake the copy */
  sum.launch(stream, count);
  CHECK(hipStreamSynchronize(stream));
  gw_u64 digest = sum.check("a piece of work");
  sum.release();
  return digest;
}

static inline hipStream_t new_stream(unsigned flags = hipStreamNonBlocking) {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, flags));
  return stream;
}

static inline hipEvent_t new_event() {
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  return event;
}

/* What a call returned, under its name. */
#define SHOW(call) printf("  %s: %s\n", #call, hipGetErrorName(call))

#endif
