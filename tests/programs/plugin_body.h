/* What every plugin_* is made of. */
#ifndef GIVEWAY_TESTS_PLUGIN_BODY_H
#define GIVEWAY_TESTS_PLUGIN_BODY_H

#include "work.h"

extern "C" unsigned long long plugin_work(int on_default, unsigned long long seed) {
  if (on_default) return whole_work(nullptr, seed);
  hipStream_t stream = new_stream();
  gw_u64 digest = whole_work(stream, seed);
  CHECK(hipStreamDestroy(stream));
  return digest;
}

extern "C" void plugin_launch(void *stream, unsigned long long *words, unsigned long count, unsigned long long first,
                              int kernels) {
  for (int i = 0; i < kernels; i++) launch_mix((hipStream_t)stream, words, words, count, first + (gw_u64)i);
}

#endif
