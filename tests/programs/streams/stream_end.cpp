// run: plain
/* Streams that end with work in them, one after the other and by several threads at once: the work is done all the same, and
 * nothing of the runtime's reaches for what went with a stream. No events: with those HIP before 6.2 fails by itself.
 *
 * hipStreamDestroy does not promise that the work is done: on HIP 7.2.4 it returns early while hipFree or hipDeviceSynchronize of
 * another thread waits for the same stream. So the program waits for its result, which the last command of a stream writes. */
#include "check.h"

#include <thread>

static bool arrives(const Words &want, volatile gw_u64 *there) {
  for (int i = 0; i < 100000; i++) {
    size_t same = 0;
    while (same < want.size() && there[same] == want[same]) same++;
    if (same == want.size()) return true;
    usleep(100);
  }
  return false;
}

static Words work_and_end(int thread, int rounds) {
  const size_t n = 500;
  Words want = pattern_words(n, (gw_u64)thread), start = want;
  gw_u64 *a = device_words(want), *b = device_words(want);
  gw_u64 *pinned;
  CHECK(hipHostMalloc((void **)&pinned, n * 8, 0));
  for (int round = 0; round < rounds; round++) {
    hipStream_t stream;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (gw_u64 i = 0; i < 3; i++) {
      launch_mix(stream, a, a, n, (gw_u64)round * 3 + i);
      cpu_mix(want, want, (gw_u64)round * 3 + i);
      CHECK(hipMemcpyAsync(b, a, n * 8, hipMemcpyDeviceToDevice, stream));
      CHECK(hipMemcpyAsync(pinned, b, n * 8, hipMemcpyDeviceToHost, stream));
      if (i < 2) CHECK(hipMemcpyAsync(a, pinned, n * 8, hipMemcpyHostToDevice, stream));
    }
    CHECK(hipStreamDestroy(stream));
    REQUIRE(arrives(want, pinned), "thread %d, round %d: other memory", thread, round);
  }
  CHECK(hipHostFree(pinned));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return want;
}

int main() {
  printf("one thread %016llx\n", digest_of(work_and_end(0, 40)));
  std::vector<Words> words(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++) threads.emplace_back([&words, i] { words[(size_t)i] = work_and_end(i + 1, 20); });
  for (auto &thread : threads) thread.join();
  for (const Words &one : words) printf("of three %016llx\n", digest_of(one));
  return passed();
}
