// run: plain
/* hipStreamPerThread: one stream for each thread, in order with the null stream, also when its thread ends with work
 * pending. */
#include <thread>

#include "check.h"

int main() {
  const size_t n = 1000;
  Words want[4];
  gw_u64 *data[4];
  for (int i = 0; i < 4; i++) {
    want[i] = pattern_words(n, (gw_u64)i);
    data[i] = device_words(want[i]);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&, i] {
      CHECK(hipSetDevice(0));
      for (gw_u64 k = 0; k < 40; k++) {
        if (k == 20) launch_busy(hipStreamPerThread, 2 * MS);
        launch_mix(hipStreamPerThread, data[i], data[i], n, k);
      }
      if (i % 2 == 0) CHECK(hipStreamSynchronize(hipStreamPerThread));
      /* the others end with their work pending */
    });
  }
  for (auto &thread : threads) thread.join();
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 4; i++) {
    for (gw_u64 k = 0; k < 40; k++) cpu_mix(want[i], want[i], k);
    SAME_WORDS(data[i], want[i], "thread " + std::to_string(i));
    printf("thread %d %016llx\n", i, digest_of(want[i]));
  }
  /* The null stream and this thread's stream by turns. */
  hipEvent_t event;
  CHECK(hipEventCreate(&event));
  for (gw_u64 k = 0; k < 40; k++) {
    launch_mix(k % 2 ? nullptr : hipStreamPerThread, data[0], data[0], n, k);
    cpu_mix(want[0], want[0], k);
  }
  CHECK(hipEventRecord(event, hipStreamPerThread));
  CHECK(hipEventSynchronize(event));
  CHECK(hipStreamQuery(hipStreamPerThread));
  CHECK(hipStreamSynchronize(nullptr));
  SAME_WORDS(data[0], want[0], "by turns with the null stream");
  printf("by turns with the null stream %016llx\n", digest_of(want[0]));
  unsigned flags = 77;
  int priority = 77;
  show("its flags", hipStreamGetFlags(hipStreamPerThread, &flags));
  show("its priority", hipStreamGetPriority(hipStreamPerThread, &priority));
  printf("flags %u priority %d\n", flags, priority);
  /* A fresh thread, again and again: each has a stream of its own, and it goes with the thread. */
  for (gw_u64 k = 0; k < 30; k++) {
    std::thread([&] { launch_mix(hipStreamPerThread, data[1], data[1], n, k); }).join();
    cpu_mix(want[1], want[1], k);
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(data[1], want[1], "thirty threads one after the other");
  printf("thirty threads one after the other %016llx\n", digest_of(want[1]));
  return passed();
}
