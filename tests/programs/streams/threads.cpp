// run: every-mode
/* Four threads, each with its own stream and buffers, while others allocate and free; and threads that share
 * one stream by turns. */
#include <atomic>
#include <mutex>
#include <thread>

#include "check.h"

/* From 7 on threads copy on the default stream by turns, and end their streams so: 7.2.4 crashes in hipMemcpy now and then
 * if they do not (2 of 40 runs, natively). */
struct Turn {
#if HIP_VERSION_MAJOR >= 7
  static std::mutex mutex;
  std::lock_guard<std::mutex> guard{mutex};
#endif
  Turn() {}
};
#if HIP_VERSION_MAJOR >= 7
std::mutex Turn::mutex;
#endif

static gw_u64 *words_in_turn(const Words &words) {
  Turn turn;
  return device_words(words);
}

static gw_u64 own_stream(int number) {
  const size_t n = 1500;
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, number % 2 ? hipStreamNonBlocking : hipStreamDefault));
  Words a = pattern_words(n, (gw_u64)number), b = pattern_words(n, (gw_u64)number + 50);
  gw_u64 *da = words_in_turn(a), *db = words_in_turn(b);
  for (int i = 0; i < 300; i++) {
    launch_mix(stream, da, db, n, (gw_u64)i);
    cpu_mix(a, b, (gw_u64)i);
    if (i % 5 == 0) {
      launch_mix(stream, db, da, n, (gw_u64)i);
      cpu_mix(b, a, (gw_u64)i);
    }
    if (i % 50 == 49) CHECK(hipStreamSynchronize(stream));
    if (i % 60 == 30) launch_busy(stream, MS);
  }
  CHECK(hipStreamSynchronize(stream));
  Turn turn;
  SAME_WORDS(da, a, "thread " + std::to_string(number));
  SAME_WORDS(db, b, "thread " + std::to_string(number));
  CHECK(hipFree(da));
  CHECK(hipFree(db));
  CHECK(hipStreamDestroy(stream));
  return digest_of(a);
}

/* Allocates, fills, checks and frees for as long as the others work. */
static void churn(int number, const std::atomic<bool> *stop) {
  Random random((gw_u64)number);
  while (!stop->load()) {
    std::vector<gw_u64 *> pieces;
    Words want = pattern_words(64 + random.below(4000), random.next());
    for (int i = 0; i < 4; i++) pieces.push_back(words_in_turn(want));
    for (gw_u64 *piece : pieces) {
      Turn turn;
      SAME_WORDS(piece, want, "churned memory");
      CHECK(hipFree(piece));
    }
  }
}

static void own_streams(int churners) {
  gw_u64 digests[4];
  std::atomic<bool> stop(false);
  std::vector<std::thread> workers, others;
  for (int t = 0; t < churners; t++) others.emplace_back(churn, t, &stop);
  for (int t = 0; t < 4; t++) workers.emplace_back([t, &digests] { digests[t] = own_stream(t); });
  for (auto &thread : workers) thread.join();
  stop.store(true);
  for (auto &thread : others) thread.join();
  for (int t = 0; t < 4; t++) printf("thread %d, %d churning: %016llx\n", t, churners, digests[t]);
}

/* Four threads launch into one stream under a lock that also keeps the CPU's version in step. */
static void shared_stream() {
  const size_t n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 9);
  gw_u64 *a = device_words(want);
  std::mutex lock;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (;;) {
        std::lock_guard<std::mutex> guard(lock);
        if (turn == 400) return;
        if (turn % 4 != t) continue;
        launch_mix(stream, a, a, n, (gw_u64)turn);
        cpu_mix(want, want, (gw_u64)turn);
        turn++;
      }
    });
  }
  for (auto &thread : threads) thread.join();
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "one stream of four threads");
  printf("one stream of four threads %016llx\n", digest_of(want));
  CHECK(hipFree(a));
  CHECK(hipStreamDestroy(stream));
}

/* hipStreamPerThread is another stream in each thread, and ends with it. */
static void per_thread_streams() {
  gw_u64 digests[4];
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([t, &digests] {
      Words want = pattern_words(800, (gw_u64)t);
      gw_u64 *a = words_in_turn(want);
      for (int i = 0; i < 50; i++) {
        launch_mix(hipStreamPerThread, a, a, 800, (gw_u64)i);
        cpu_mix(want, want, (gw_u64)i);
      }
      CHECK(hipStreamSynchronize(hipStreamPerThread));
      Turn turn;
      SAME_WORDS(a, want, "hipStreamPerThread of thread " + std::to_string(t));
      CHECK(hipFree(a));
      digests[t] = digest_of(want);
    });
  }
  for (auto &thread : threads) thread.join();
  for (int t = 0; t < 4; t++) printf("per-thread stream %d: %016llx\n", t, digests[t]);
}

int main() {
  own_streams(0);
  own_streams(2);
  shared_stream();
  per_thread_streams();
  return passed();
}
