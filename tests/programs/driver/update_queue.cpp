// run: every-mode | holds
/* Taking queues off the hardware and putting them back with AMDKFD_IOC_UPDATE_QUEUE, as hal-kfd will: an own
 * `ioctl` notes every queue at its creation; percentage 0 stops a running kernel, 100 lets it go on with the
 * time that it had left. (On the simulated device: a real `busy` kernel watches a clock that a hold does not
 * stop.) */
#include "check.h"
#include "kfd_seen.h"

static int update(const SeenQueue &q, uint32_t percentage) {
  kfd_update_queue update = q.update(percentage);
  return ioctl(q.fd, KFD_UPDATE_QUEUE, &update);
}

/* All compute queues of the process get this percentage. */
static void update_compute_queues(uint32_t percentage) {
  int error;
  REQUIRE(update_compute_queues(percentage, error) > 0, "no compute queue was seen at its creation");
  REQUIRE(error == 0, "UPDATE_QUEUE to %u: %s", percentage, strerror(error));
}

/* Busy all this time, unless the machine was too busy to look before `end`, when the kernel may have ended. */
static bool busy_before(hipStream_t stream, gw_u64 duration, gw_u64 end) {
  return never_in(duration, [&] {
    const hipError_t state = hipStreamQuery(stream);
    if (now_ns() >= end) return true;
    EXPECT(state, hipErrorNotReady);
    return false;
  });
}

/* Every stop and start of a kernel of 600 ms; `before` is how long it runs until the first stop. `false` if the machine was
 * too busy for it to say anything. */
static bool round_of_holds(hipStream_t stream, gw_u64 *data, Words &want, gw_u64 before, int holds,
                           bool timing) {
  const gw_u64 duration = 600 * MS, hold = 400 * MS;
  gw_u64 stopped = 0, start = now_ns();
  bool in_time = true;
  launch_busy(stream, duration);
  launch_mix(stream, data, data, want.size(), 7);
  cpu_mix(want, want, 7);
  for (int i = 0; i < holds && in_time; i++) {
    gw_u64 end = start + duration + stopped;
    in_time = busy_before(stream, i > 0 ? 50 * MS : before, end);
    update_compute_queues(0);
    gw_u64 from = now_ns();
    in_time = in_time && from < end;
    if (in_time) stays_busy(stream, hold);
    stopped += now_ns() - from;
    update_compute_queues(100);
  }
  CHECK(hipStreamSynchronize(stream));
  gw_u64 total = now_ns() - start;
  SAME_WORDS(data, want, "work behind a held kernel");
  if (!in_time) return false;
  REQUIRE(total >= duration + stopped,
          "done after %llu us, before %llu us of work and %llu us of hold had passed", total / 1000,
          duration / 1000, stopped / 1000);
  /* Without the time already run, at least `before` more would have passed. */
  return total <= duration + stopped + (timing ? 150 * MS : before - 50 * MS);
}

static void hold_and_release(hipStream_t stream, gw_u64 *data, Words &want, gw_u64 before, int holds,
                             bool timing) {
  int rounds = 1;
  while (!round_of_holds(stream, data, want, before, holds, timing)) {
    REQUIRE(rounds++ < 10, "in no round was a kernel done in time: the time already run is lost");
  }
  printf("held %d times: stayed busy, remaining time kept\n", holds);
}

static void held_before_launch(hipStream_t stream, gw_u64 *data, Words &want) {
  update_compute_queues(0);
  launch_mix(stream, data, data, want.size(), 8);
  stays_busy(stream, 100 * MS);
  update_compute_queues(0); /* twice is once */
  stays_busy(stream, 20 * MS);
  update_compute_queues(100);
  CHECK(hipStreamSynchronize(stream));
  update_compute_queues(100);
  launch_mix(stream, data, data, want.size(), 9);
  cpu_mix(want, want, 8);
  cpu_mix(want, want, 9);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work launched to a held queue");
  printf("a launch to a held queue waits for its release\n");
}

/* Requests that the driver refuses, which change nothing. */
static void refused() {
  const std::vector<SeenQueue> all = queues_seen();
  REQUIRE(!all.empty(), "no queue was seen at its creation");
  const SeenQueue q = all.front();
  SeenQueue wrong = q;
  wrong.made.queue_id = 0xFFFF;
  REQUIRE(update(wrong, 100) == -1, "an unknown queue was updated");
  REQUIRE(update(q, 101) == -1 && errno == EINVAL, "percentage 101: %s", strerror(errno));
  wrong = q;
  wrong.made.queue_priority = 16;
  REQUIRE(update(wrong, 100) == -1 && errno == EINVAL, "priority 16: %s", strerror(errno));
  wrong = q;
  wrong.made.ring_size = q.made.ring_size + 1;
  REQUIRE(update(wrong, 100) == -1 && errno == EINVAL, "ring size not a power of two: %s", strerror(errno));
  REQUIRE(update(q, q.made.queue_percentage) == 0, "the queue as created: %s", strerror(errno));
  printf("wrong updates are refused\n");
}

int main(int argc, char **argv) {
  const bool timing = has_flag(argc, argv, "--timing");
  hipStream_t stream, high;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipStreamCreateWithPriority(&high, hipStreamNonBlocking, -1));
  Words want = pattern_words(4096, 1);
  gw_u64 *data = device_words(want);
  launch_mix(stream, data, data, want.size(), 1);
  launch_busy(high, MS);
  CHECK(hipDeviceSynchronize());
  cpu_mix(want, want, 1);
  refused();
  hold_and_release(stream, data, want, 400 * MS, 1, timing);
  hold_and_release(stream, data, want, 300 * MS, 3, timing);
  hold_and_release(high, data, want, 400 * MS, 1, timing);
  held_before_launch(stream, data, want);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(high));
  CHECK(hipFree(data));
  return passed();
}
