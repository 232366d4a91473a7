// run: plain
/* Threads end with work pending on their per-thread stream, in two ways: it is done all the same. */
#include <pthread.h>

#include <thread>

#include "work.h"

static void *leaving(void *argument) {
  Sum *sum = (Sum *)argument;
  launch_busy(hipStreamPerThread, 3 * MS);
  sum->launch(hipStreamPerThread, 8);
  pthread_exit(nullptr);
}

int main() {
  std::vector<Sum> sums;
  for (int i = 0; i < 12; i++) sums.emplace_back((gw_u64)i);
  CHECK(hipDeviceSynchronize());
  for (size_t i = 0; i < sums.size(); i++) {
    if (i % 3 == 2) {
      pthread_t thread;
      REQUIRE(pthread_create(&thread, nullptr, leaving, &sums[i]) == 0, "pthread_create");
      REQUIRE(pthread_join(thread, nullptr) == 0, "pthread_join");
    } else {
      std::thread([&, i] {
        launch_busy(hipStreamPerThread, 3 * MS);
        sums[i].launch(hipStreamPerThread, 8);
      }).join();
    }
    CHECK(hipDeviceSynchronize());
    printf("%016llx\n", sums[i].check("work of a thread's own stream"));
  }
  return passed();
}
