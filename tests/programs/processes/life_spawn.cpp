// run: plain
/* posix_spawn of this program while it has work pending; both use HIP. */
#include <spawn.h>

#include "processes.h"
#include "work.h"

extern char **environ;

int main(int argc, char **argv) {
  if (argc > 1) {
    printf("%s %016llx\n", argv[1], whole_work(new_stream(), 4));
    return 0;
  }
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 3; i++) {
    sum.launch(stream, 10);
    char name[] = "self", role[] = "spawned";
    char *arguments[] = {name, role, nullptr};
    pid_t child;
    fflush(stdout);
    int code = posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ);
    REQUIRE(code == 0, "posix_spawn: %s", strerror(code));
    sum.launch(stream, 10);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    printf("child %d: status %x\n", i, status);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
}
