/* xsched/kfd.h as an application uses it, on its own queues: linked against libshimhip.so, nothing in the environment.
 * With --refused the driver saves no waves, or holding is switched off: every suspension says so, and nothing stands still. */
#include "check.h"

#include <cerrno>
#include <vector>

#include "xsched/kfd.h"

static void result_at(XKfdResult got, XKfdResult want, int line, const char *what) {
  if (got != want) fail_at(__FILE_NAME__, line, what, "result %d, expected %d", (int)got, (int)want);
}
#define GIVES(call, want) result_at((call), (want), __LINE__, #call)
#define FINE(call) GIVES(call, kXKfdSuccess)

static std::vector<XKfdQueue> queues(XKfdSession session) {
  uint32_t count = 0;
  FINE(XKfdListQueues(session, nullptr, &count));
  std::vector<XKfdQueue> all(count);
  FINE(XKfdListQueues(session, all.data(), &count));
  REQUIRE(count == all.size(), "%u queues, and then %zu", (unsigned)count, all.size());
  return all;
}

static std::vector<uint32_t> compute(XKfdSession session) {
  std::vector<uint32_t> ids;
  for (const XKfdQueue &queue : queues(session)) {
    if (queue.type == kXKfdQueueCompute) ids.push_back(queue.queue_id);
  }
  REQUIRE(!ids.empty(), "no compute queue");
  return ids;
}

static bool all_are(XKfdSession session, const std::vector<uint32_t> &ids, XKfdQueueState want) {
  for (uint32_t id : ids) {
    XKfdQueueState state;
    FINE(XKfdStatus(session, id, &state));
    if (state != want) return false;
  }
  return true;
}

/* A kernel of 20 ms, and work behind it that memory shows. */
static void work(hipStream_t stream, gw_u64 *data, Words &want, gw_u64 value) {
  launch_busy(stream, 20 * MS);
  launch_mix(stream, data, data, want.size(), value);
  cpu_mix(want, want, value);
}

/* What takes 20 ms is not done after 200 ms. */
static const gw_u64 LONG = 200 * MS;

/* Work that stands still; again where the machine was too busy and it had ended before it was suspended. */
static void suspend_at_work(XKfdSession session, hipStream_t stream, gw_u64 *data, Words &want, gw_u64 value) {
  for (int tries = 1;; tries++) {
    work(stream, data, want, value);
    FINE(XKfdSuspend(session, nullptr, 0));
    if (is_busy_for(stream, LONG)) return;
    REQUIRE(tries < 10, "a suspended kernel went on, %d times", tries);
    FINE(XKfdResume(session, nullptr, 0));
    CHECK(hipStreamSynchronize(stream));
  }
}

int main(int argc, char **argv) {
  const bool refused = argc > 1 && strcmp(argv[1], "--refused") == 0;
  XKfdSession session = 0;
  XKfdQueueState state;
  uint32_t count = 0, copies = 0;
  GIVES(XKfdOpen(nullptr, 0), kXKfdErrorInvalidValue);
  GIVES(XKfdOpen(&session, -5), kXKfdErrorInvalidValue);
  GIVES(XKfdOpen(&session, 0x7ffffffe), kXKfdErrorNotFound);
  GIVES(XKfdClose(session), kXKfdErrorNotFound);
  GIVES(XKfdListQueues(1, nullptr, &count), kXKfdErrorNotFound);
  FINE(XKfdOpen(&session, 0));
  REQUIRE(session != 0, "0 names none");
  GIVES(XKfdListQueues(session, nullptr, nullptr), kXKfdErrorInvalidValue);
  GIVES(XKfdStatus(session, 0, nullptr), kXKfdErrorInvalidValue);
  GIVES(XKfdStatus(session, 4711, &state), kXKfdErrorNotFound);

  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(1024, 7);
  gw_u64 *data = device_words(want);
  work(stream, data, want, 1);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work before any hold");

  if (refused) {
    GIVES(XKfdSuspend(session, nullptr, 0), kXKfdErrorNotSupported);
    work(stream, data, want, 2);
    CHECK(hipStreamSynchronize(stream));
    SAME_WORDS(data, want, "work after a refused suspension");
    FINE(XKfdResume(session, nullptr, 0));
    FINE(XKfdClose(session));
    return passed();
  }

  const std::vector<uint32_t> ids = compute(session);
  for (const XKfdQueue &queue : queues(session)) {
    REQUIRE(queue.ring_address != 0 && queue.ring_size != 0 && (queue.ring_size & (queue.ring_size - 1)) == 0,
            "queue %u: ring %llx of %llu bytes", queue.queue_id, (unsigned long long)queue.ring_address,
            (unsigned long long)queue.ring_size);
    REQUIRE(queue.gpu_id != 0 && queue.write_pointer_address != 0 && queue.read_pointer_address != 0,
            "queue %u is not described", queue.queue_id);
  }
  REQUIRE(all_are(session, ids, kXKfdQueueStateMapped), "a queue is off the hardware");

  /* All of them, by no name. */
  suspend_at_work(session, stream, data, want, 3);
  REQUIRE(all_are(session, ids, kXKfdQueueStateSuspended), "a queue is on the hardware");
  FINE(XKfdSuspend(session, nullptr, 0)); /* a second time changes nothing */
  FINE(XKfdResume(session, nullptr, 0));
  CHECK(hipStreamSynchronize(stream));
  REQUIRE(all_are(session, ids, kXKfdQueueStateMapped), "a queue is off the hardware");
  SAME_WORDS(data, want, "work that stood still");

  /* By their numbers; launched while they are off. */
  FINE(XKfdSuspend(session, ids.data(), (uint32_t)ids.size()));
  work(stream, data, want, 4);
  stays_busy(stream, LONG);
  FINE(XKfdResume(session, ids.data(), (uint32_t)ids.size()));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work that came while its queue was off");

  const uint32_t wrong[] = {ids[0], 4711};
  GIVES(XKfdSuspend(session, wrong, 2), kXKfdErrorNotFound);
  REQUIRE(all_are(session, ids, kXKfdQueueStateMapped), "a refused suspension held a queue");
  GIVES(XKfdSuspend(session, nullptr, 3), kXKfdErrorInvalidValue);

  /* Copy engines are left alone, and with one of them everything that is named. */
  for (const XKfdQueue &queue : queues(session)) {
    if (queue.type == kXKfdQueueCompute) continue;
    const uint32_t both[] = {ids[0], queue.queue_id};
    GIVES(XKfdSuspend(session, &queue.queue_id, 1), kXKfdErrorInvalidValue);
    GIVES(XKfdSuspend(session, both, 2), kXKfdErrorInvalidValue);
    copies++;
  }
  REQUIRE(copies != 0, "no queue for copies");
  REQUIRE(all_are(session, ids, kXKfdQueueStateMapped), "a refused suspension held a queue");

  /* Two sessions: what one resumes is not the other's. The end of a session resumes what it has suspended. */
  XKfdSession other = 0;
  FINE(XKfdOpen(&other, (int32_t)getpid()));
  FINE(XKfdSuspend(other, nullptr, 0));
  work(stream, data, want, 5);
  FINE(XKfdResume(session, nullptr, 0));
  stays_busy(stream, LONG);
  FINE(XKfdClose(other));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work of a session that was closed");
  GIVES(XKfdClose(other), kXKfdErrorNotFound);

  /* A stream that ends while its queue is off does not hang. */
  hipStream_t second;
  CHECK(hipStreamCreate(&second));
  launch_busy(second, 1 * MS);
  FINE(XKfdSuspend(session, nullptr, 0));
  FINE(XKfdClose(session));
  CHECK(hipStreamDestroy(second));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
