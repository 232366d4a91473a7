// run: plain
/* Threads launch and end at once, some detached; what they have sent runs, and another thread can wait for it. */
#include <atomic>
#include <thread>

#include "work.h"

int main() {
  const int count = 16;
  std::vector<Sum> sums;
  std::vector<hipStream_t> streams;
  for (int i = 0; i < count; i++) {
    sums.emplace_back((gw_u64)i);
    streams.push_back(new_stream());
  }
  CHECK(hipDeviceSynchronize());
  std::atomic<int> ended(0);
  for (int i = 0; i < count; i++) {
    std::thread thread([&, i] {
      launch_busy(streams[(size_t)i], 2 * MS);
      sums[(size_t)i].launch(streams[(size_t)i], 10);
      ended++;
    });
    if (i % 2) thread.join();
    else thread.detach();
  }
  until([&] { return ended == count; });
  for (int i = 0; i < count; i++) {
    CHECK(hipStreamSynchronize(streams[(size_t)i]));
    printf("%016llx\n", sums[(size_t)i].check("work of a thread that is gone"));
  }
  return passed();
}
