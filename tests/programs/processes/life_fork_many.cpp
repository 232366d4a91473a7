// run: plain
/* 200 children of a process with pending work live at the same time: a third becomes another program, a third leaves by
 * exit(), and a third waits to be let go. The parent launches meanwhile. */
#include "processes.h"
#include "work.h"

static const int CHILDREN = 200;

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 20 * MS);
  int gate[2];
  REQUIRE(pipe2(gate, O_CLOEXEC) == 0, "pipe2: %s", strerror(errno));
  std::vector<pid_t> children;
  fflush(stdout);
  for (int i = 0; i < CHILDREN; i++) {
    pid_t child = fork();
    REQUIRE(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
      close(gate[1]);
      if (i % 3 == 0) {
        execl("/bin/true", "true", (char *)nullptr);
        _exit(9);
      }
      /* From 6 on the runtime's destructors crash in a child that leaves by exit(), natively (life_fork_exit). */
      if (i % 3 == 1 && HIP_VERSION_MAJOR < 6) exit(0);
      char byte;
      _exit(i % 3 == 2 ? (int)read(gate[0], &byte, 1) : 0);
    }
    children.push_back(child);
    if (i % 20 == 0) sum.launch(stream, 3);
  }
  close(gate[1]);
  sum.launch(stream, 20);
  for (int i = 0; i < CHILDREN; i++) {
    int status = 0;
    while (waitpid(children[i], &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    REQUIRE(status == 0, "child %d: status %x", i, status);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%d children %016llx\n", CHILDREN, sum.check("the parent's work"));
  return passed();
}
