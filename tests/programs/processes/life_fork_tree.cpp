// run: plain
/* Three generations, each forked before its parent has used HIP; every process then uses it at the same time. */
#include "processes.h"
#include "work.h"

static int generation(int depth) {
  pid_t child = -1;
  if (depth < 3) {
    fflush(stdout);
    child = fork();
    REQUIRE(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) _exit(generation(depth + 1));
  }
  gw_u64 digest = whole_work(new_stream(), (gw_u64)depth);
  if (child > 0) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "generation %d: status %x", depth + 1, status);
  }
  /* The child has printed before. */
  printf("generation %d %016llx\n", depth, digest);
  fflush(stdout);
  return 0;
}

int main() {
  generation(0);
  return passed();
}
