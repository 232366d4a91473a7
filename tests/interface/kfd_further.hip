/* A program that makes a further context of the KFD, whose queues have the same numbers as others: whatever is held then goes
 * on, and nothing is held any more. */
#include "check.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "xsched/kfd.h"

#define KFD_CREATE_PROCESS _IO('K', 0x27)

int main() {
  XKfdSession session = 0;
  REQUIRE(XKfdOpen(&session, 0) == kXKfdSuccess, "no session");
  Words want = pattern_words(1024, 9);
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  gw_u64 *data = device_words(want);
  auto work = [&](gw_u64 value) {
    launch_busy(stream, MS);
    launch_mix(stream, data, data, want.size(), value);
    cpu_mix(want, want, value);
  };
  work(1);
  CHECK(hipStreamSynchronize(stream));
  REQUIRE(XKfdSuspend(session, nullptr, 0) == kXKfdSuccess, "not suspended");
  work(2);
  stays_busy(stream, 50 * MS);
  const int other = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  REQUIRE(other >= 0, "/dev/kfd: %s", strerror(errno));
  /* Older drivers refuse it. */
  ioctl(other, KFD_CREATE_PROCESS);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work that was off the hardware");
  REQUIRE(XKfdSuspend(session, nullptr, 0) == kXKfdErrorNotSupported, "suspended all the same");
  work(3);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "work afterwards");
  close(other);
  REQUIRE(XKfdClose(session) == kXKfdSuccess, "not closed");
  return passed();
}
