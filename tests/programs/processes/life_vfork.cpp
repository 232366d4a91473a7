// run: plain
/* vfork while kernels are pending: a child that ends at once, and one that becomes another program. */
#include "processes.h"
#include "work.h"

static int status_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    printf("%s %016llx\n", argv[1], whole_work(new_stream(), 4));
    fflush(stdout);
    return 6;
  }
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 20 * MS);
  for (volatile int i = 0; i < 10; i = i + 1) {
    sum.launch(stream, 4);
    pid_t child = vfork();
    if (child == 0) _exit(i);
    REQUIRE(child > 0, "vfork: %s", strerror(errno));
    int status = status_of(child);
    REQUIRE(status == i, "child %d ended with %d", i, status);
  }
  char name[] = "self", role[] = "executed";
  char *arguments[] = {name, role, nullptr};
  sum.launch(stream, 4);
  fflush(stdout);
  pid_t child = vfork();
  if (child == 0) {
    execv("/proc/self/exe", arguments);
    _exit(127);
  }
  REQUIRE(child > 0, "vfork: %s", strerror(errno));
  sum.launch(stream, 4);
  printf("child %d\n", status_of(child));
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
  (void)argv;
}
