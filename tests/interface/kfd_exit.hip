/* The end of a program whose queues are off the hardware, and in which nothing is scheduled: its handlers of exit wait for them,
 * one from before there were queues and one from before they were suspended. */
#include "check.h"
#include "xsched/kfd.h"

static hipStream_t stream;
static gw_u64 *data;
static Words want;

static void complete() {
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work that was off the hardware at exit");
}

static void last() {
  complete();
  passed();
}

static void work(gw_u64 value) {
  launch_busy(stream, 20 * MS);
  launch_mix(stream, data, data, want.size(), value);
  cpu_mix(want, want, value);
}

int main(int argc, char **argv) {
  /* Or it is opened before there are queues. */
  const bool early = has_flag(argc, argv, "early");
  XKfdSession session = 0;
  REQUIRE(atexit(last) == 0, "atexit");
  if (early) REQUIRE(XKfdOpen(&session, 0) == kXKfdSuccess, "no session");
  want = pattern_words(1024, 9);
  CHECK(hipStreamCreate(&stream));
  data = device_words(want);
  work(1);
  CHECK(hipStreamSynchronize(stream));
  if (!early) {
    /* What a hold costs is measured on a queue that has been used, then. */
    REQUIRE(atexit(complete) == 0, "atexit");
    REQUIRE(XKfdOpen(&session, 0) == kXKfdSuccess, "no session");
  }
  work(2);
  const XKfdResult suspended = XKfdSuspend(session, nullptr, 0);
  REQUIRE(suspended == kXKfdSuccess, "suspended: %d", (int)suspended);
  /* The kernel does not end. */
  stays_busy(stream, 100 * MS);
  exit(0);
}
