// run: build -DHIP_API_PER_THREAD_DEFAULT_STREAM
/* Compiled for a default stream of each thread, as with -fgpu-default-stream=per-thread: stream 0 is this thread's own, in
 * launches, copies, fills, events and queries (the functions with _spt). */
#include <future>
#include <thread>

#include "check.h"
/* The headers of 5.2.3 rename this one, and the library lacks the other. */
#undef hipEventRecord
extern "C" hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);

int main() {
  const size_t n = 1000;
  Words want[3];
  gw_u64 *data[3];
  for (int i = 0; i < 3; i++) {
    want[i] = pattern_words(n, (gw_u64)i);
    data[i] = device_words(want[i]);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([&, i] {
      Words words = want[i], back(n);
      hipEvent_t event;
      CHECK(hipEventCreate(&event));
      for (gw_u64 k = 0; k < 30; k++) {
        if (k % 7 == 0) launch_busy(nullptr, MS);
        launch_mix(nullptr, data[i], data[i], n, k);
        cpu_mix(words, words, k);
        if (k % 10 == 5) {
          CHECK(hipMemsetAsync(data[i], (int)k, 64, nullptr));
          memset(words.data(), (int)k, 64);
        }
        if (k % 10 == 8) {
          CHECK(hipMemcpy(back.data(), data[i], n * sizeof(gw_u64), hipMemcpyDeviceToHost));
          SAME(back.data(), words.data(), n * sizeof(gw_u64), "a copy behind launches");
        }
      }
      CHECK(hipEventRecord(event, hipStreamPerThread));
      CHECK(hipStreamWaitEvent(nullptr, event, 0));
      CHECK(hipStreamSynchronize(nullptr));
      CHECK(hipEventQuery(event));
      want[i] = words;
    });
  }
  for (auto &thread : threads) thread.join();
  for (int i = 0; i < 3; i++) {
    SAME_WORDS(data[i], want[i], "thread " + std::to_string(i));
    printf("thread %d %016llx\n", i, digest_of(want[i]));
  }
  /* Beside another thread's default stream that is busy. */
  std::promise<void> held, done;
  std::thread other([&] {
    launch_busy(nullptr, 100 * MS);
    launch_mix(nullptr, data[0], data[0], n, 1);
    held.set_value();
    done.get_future().wait();
  });
  held.get_future().wait();
  launch_mix(nullptr, data[1], data[1], n, 2);
  CHECK(hipStreamSynchronize(nullptr));
  done.set_value();
  other.join();
  CHECK(hipDeviceSynchronize());
  cpu_mix(want[0], want[0], 1);
  cpu_mix(want[1], want[1], 2);
  SAME_WORDS(data[0], want[0], "the thread that has ended");
  SAME_WORDS(data[1], want[1], "this thread");
  printf("one thread beside another\n");
  return passed();
}
