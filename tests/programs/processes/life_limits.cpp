// run: plain
/* Limits that a program sets for itself while it uses HIP: no file may grow, and no descriptor can be had. What it has goes on
 * working, and streams can be made. Behind that the limits are what they were. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>

#include "work.h"

/* Sets the limit, and returns what it was. */
static rlim_t limit(decltype(RLIMIT_FSIZE) what, rlim_t most) {
  struct rlimit now;
  REQUIRE(getrlimit(what, &now) == 0, "getrlimit: %s", strerror(errno));
  const rlim_t before = now.rlim_cur;
  now.rlim_cur = most;
  REQUIRE(setrlimit(what, &now) == 0, "setrlimit: %s", strerror(errno));
  return before;
}

int main() {
  hipStream_t stream = new_stream();
  hipEvent_t event = new_event();
  Sum sum(7);
  CHECK(hipDeviceSynchronize());
  sum.launch(stream, 20);
  CHECK(hipEventRecord(event, stream));
  CHECK(hipStreamSynchronize(stream));
  auto work = [&](const char *name) {
    for (int round = 0; round < 20; round++) {
      sum.launch(stream, 20);
      if (round % 2) CHECK(hipStreamSynchronize(stream));
      else CHECK(hipEventRecord(event, stream));
      while (hipEventQuery(event) == hipErrorNotReady) sched_yield();
    }
    CHECK(hipStreamSynchronize(stream));
    printf("%s\n", name);
  };
  const rlim_t size = limit(RLIMIT_FSIZE, 0);
  work("no file may grow");
  const int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
  REQUIRE(number >= 0, "open: %s", strerror(errno));
  close(number);
  const rlim_t files = limit(RLIMIT_NOFILE, 3);
  REQUIRE(open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 && errno == EMFILE, "a descriptor could be had");
  work("no descriptor");
  std::vector<hipStream_t> more(8);
  for (auto &one : more) CHECK(hipStreamCreate(&one));
  sum.launch(more[7], 20);
  CHECK(hipStreamSynchronize(more[7]));
  limit(RLIMIT_FSIZE, size);
  limit(RLIMIT_NOFILE, files);
  printf("%016llx\n", sum.check("the work"));
  return passed();
}
