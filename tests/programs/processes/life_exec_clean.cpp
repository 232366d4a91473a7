// run: plain
/* A program is started with next to no environment, and so without what was preloaded: it runs as it does natively. */
#include "processes.h"
#include "work.h"

int main(int argc, char **argv) {
  if (argc > 1) {
    printf("%s: %s %016llx\n", argv[1], getenv("LD_PRELOAD") ? "preloaded" : "clean", whole_work(new_stream(), 4));
    return 0;
  }
  hipStream_t stream = new_stream();
  Sum sum(1);
  sum.launch(stream, 10);
  fflush(stdout);
  pid_t child = fork();
  REQUIRE(child >= 0, "fork: %s", strerror(errno));
  if (child == 0) {
    /* The simulated device asks for these. */
    std::vector<char *> keep;
    for (char **entry = environ; *entry; entry++)
      if (strncmp(*entry, "HSA_", 4) == 0) keep.push_back(*entry);
    keep.push_back(nullptr);
    char name[] = "self", role[] = "child";
    char *arguments[] = {name, role, nullptr};
    execve("/proc/self/exe", arguments, keep.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
  REQUIRE(status == 0, "status %x", status);
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
  (void)argv;
}
