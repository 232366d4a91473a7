// run: plain
/* A child of a process that uses HIP leaves by exit(): handlers and destructors run in it, and the parent notices nothing. */
#include "processes.h"
#include "work.h"

static pid_t parent;
static void handler() {
  if (getpid() != parent) {
    static const char said[] = "the child's handler\n";
    REQUIRE(write(1, said, sizeof said - 1) > 0, "write: %s", strerror(errno));
  }
}

int main() {
  parent = getpid();
  atexit(handler);
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 3; i++) {
    sum.launch(stream, 10);
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
      /* From 6 on the runtime's destructors crash in such a child, or never end, natively. */
      if (HIP_VERSION_MAJOR >= 6) alarm(10);
      exit(5);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    if (HIP_VERSION_MAJOR < 6) printf("child %d: status %x\n", i, status);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
}
