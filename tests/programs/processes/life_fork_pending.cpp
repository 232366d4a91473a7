// run: plain
/* Children are forked while kernels are pending, and end by _exit; the parent's work goes on. */
#include "processes.h"
#include "work.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 30 * MS);
  for (int i = 0; i < 20; i++) {
    sum.launch(stream, 5);
    pid_t child = fork();
    REQUIRE(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) _exit(i);
    sum.launch(stream, 2);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == i, "child %d: status %x", i, status);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
}
