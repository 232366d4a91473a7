// run: every-mode
/* Fork: a child born before HIP starts uses HIP itself; a child of a process that uses HIP leaves it alone,
 * or starts a fresh program that uses it. */
#include "processes.h"

static gw_u64 work(gw_u64 seed) {
  Words want = pattern_words(2000, seed);
  gw_u64 *a = device_words(want);
  for (gw_u64 i = 0; i < 100; i++) {
    launch_mix(nullptr, a, a, 2000, i);
    cpu_mix(want, want, i);
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(a, want, "work of a process");
  CHECK(hipFree(a));
  return digest_of(want);
}

static int status_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The child sends its digest through a pipe; parent and child use HIP at the same time. */
static void before_hip() {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  pid_t pid = fork();
  REQUIRE(pid >= 0, "fork: %s", strerror(errno));
  if (pid == 0) {
    gw_u64 digest = work(1);
    REQUIRE(write(ends[1], &digest, sizeof digest) == (ssize_t)sizeof digest, "write: %s", strerror(errno));
    _exit(0);
  }
  gw_u64 mine = work(2), of_child = 0;
  REQUIRE(read(ends[0], &of_child, sizeof of_child) == (ssize_t)sizeof of_child, "read: %s", strerror(errno));
  REQUIRE(status_of(pid) == 0, "the child failed");
  close(ends[0]);
  close(ends[1]);
  printf("child born before HIP: %016llx, parent: %016llx\n", of_child, mine);
}

/* Children without HIP come and go while the parent's kernel runs. */
static void without_hip() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(1000, 3);
  gw_u64 *a = device_words(want);
  launch_busy(stream, 200 * MS);
  for (int i = 0; i < 10; i++) {
    launch_mix(stream, a, a, 1000, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
      std::vector<char> memory(1 << 20, (char)i); /* a child that works a little */
      _exit(memory[12345] == (char)i ? 40 + i : 1);
    }
    int status = status_of(pid);
    REQUIRE(status == 40 + i, "child %d ended with %d", i, status);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "the parent's work across forks");
  CHECK(hipFree(a));
  CHECK(hipStreamDestroy(stream));
  printf("children without HIP: parent %016llx\n", digest_of(want));
}

static void fork_and_exec() {
  Child child = start_self({"work"});
  gw_u64 mine = work(5);
  std::string line = child.line();
  int status = child.end();
  REQUIRE(status == 0, "the executed child ended with %d", status);
  printf("executed child: %s, parent %016llx\n", line.c_str(), mine);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "work") == 0) {
    printf("%016llx\n", work(4));
    settle();
    return 0;
  }
  before_hip();
  without_hip();
  fork_and_exec();
  return passed();
}
