// run: plain
/* A program that does to itself what the harness says, one line of input each, and answers each with a line: it changes its
 * descriptors, limits, variables and filters, and works in between. Uses HIP from the word "start" on. At the end of its input
 * it checks its work. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "work.h"

/* After the word "nothreads" no thread can be made but the runtime's, which ends the process without one. */
static bool no_threads;

static bool is_runtimes(void *address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && (strstr(info.dli_fname, "/libhsa-") || strstr(info.dli_fname, "/libamdhip64"));
}

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *data) {
  static auto real = (decltype(&pthread_create))dlsym(RTLD_NEXT, "pthread_create");
  return no_threads && !is_runtimes((void *)body) ? EAGAIN : real(thread, attributes, body, data);
}

static Sum *sum;
static hipStream_t stream;

static void start() {
  if (sum != nullptr) return;
  sum = new Sum(7);
  CHECK(hipStreamCreate(&stream));
  sum->launch(stream, 20);
  CHECK(hipStreamSynchronize(stream));
}

/* `filter ACTION CALL`: what a system call does from now on, in all threads. */
static void filter(const char *action, const char *call) {
  const bool shared = strcmp(call, "shared-futex") == 0;
  const unsigned does = strcmp(action, "killthread") == 0 ? SECCOMP_RET_KILL_THREAD
                        : strcmp(action, "kill") == 0     ? SECCOMP_RET_KILL_PROCESS
                        : strcmp(action, "trap") == 0     ? SECCOMP_RET_TRAP
                                                          : SECCOMP_RET_ERRNO | EPERM;
  const int number = shared                          ? SYS_futex
                     : strcmp(call, "ppoll") == 0    ? SYS_ppoll
                     : strcmp(call, "socket") == 0   ? SYS_socket
                     : strcmp(call, "no-call") == 0  ? 100000
                                                     : -1;
  REQUIRE(number >= 0, "which call: %s", call);
  /* A shared wait is the one of a thread that waits for another process: no FUTEX_PRIVATE_FLAG. */
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAIT, 0, (unsigned char)shared),
      BPF_STMT(BPF_RET | BPF_K, does),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0, "seccomp: %s",
          strerror(errno));
}

/* Words of the host that kernels write, one each. To look at them is no call, so that it proves nothing to anybody. */
struct Signs {
  static const size_t COUNT = 256;
  volatile gw_u64 *words = nullptr;
  gw_u64 *source = nullptr;
  gw_u64 next = 0;

  void allocate() {
    CHECK(hipHostMalloc((void **)&words, COUNT * sizeof(gw_u64), hipHostMallocDefault));
    source = device_words(pattern_words(1, 3));
  }
  /* A kernel that takes a millisecond and one that writes the next word, which is 0 until then. */
  gw_u64 launch(hipStream_t on) {
    words[next % COUNT] = 0;
    launch_busy(on, 1 * MS);
    launch_mix(on, (gw_u64 *)&words[next % COUNT], source, 1, next + 1);
    return next++;
  }
  bool is_done(gw_u64 which) const { return words[which % COUNT] != 0; }
  void wait(gw_u64 which) const {
    while (!is_done(which)) usleep(100);
  }
};

static Signs own, theirs;
static std::atomic<gw_u64> rounds;
static std::atomic<bool> calm;
static gw_u64 behind;

/* A stream of higher priority that always has work, until it is calm. The program calls nothing that shows its end. */
static void rival() {
  start();
  own.allocate();
  theirs.allocate();
  CHECK(hipStreamSynchronize(nullptr));
  std::thread([] {
    hipStream_t urgent = new_stream();
    /* Its queue comes into being. */
    gw_u64 last = theirs.launch(urgent);
    typedef int (*Get)(uint64_t *, void *);
    typedef int (*Queue)(uint64_t *, uint64_t);
    typedef int (*Priority)(uint64_t, int);
    uint64_t hardware = 0, queue = 0;
    REQUIRE(((Get)dlsym(RTLD_DEFAULT, "HipQueueCreate"))(&hardware, urgent) == 0, "a hardware queue");
    REQUIRE(((Queue)dlsym(RTLD_DEFAULT, "XQueueGet"))(&queue, hardware) == 0, "an XQueue");
    REQUIRE(((Priority)dlsym(RTLD_DEFAULT, "XHintPriority"))(queue, 10) == 0, "a priority");
    while (!calm) {
      gw_u64 one_more = theirs.launch(urgent);
      theirs.wait(last);
      last = one_more;
      rounds++;
    }
    theirs.wait(last);
  }).detach();
}

/* Returns when work of its own does not get on beside the rival: it is suspended. */
static void beside() {
  for (bool held = false; !held;) {
    behind = own.launch(stream);
    for (gw_u64 enough = rounds + 20; rounds < enough && !own.is_done(behind);) usleep(100);
    held = !own.is_done(behind);
  }
}

/* The numbers below 100 that lead to something, and what. */
static void numbers() {
  for (int fd = 3; fd < 100; fd++)
    if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
  printf("\n");
}

/* Takes this number for a pipe that nobody reads and that has no room. */
static void full_pipe(int number) {
  int ends[2];
  char byte = 0;
  REQUIRE(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0, "pipe");
  while (write(ends[1], &byte, 1) == 1) {}
  REQUIRE(fcntl(ends[1], F_SETFL, 0) == 0 && dup2(ends[1], number) == number, "dup2");
}

/* Takes this number for a pipe whose reader has gone. */
static void closed_pipe(int number) {
  int ends[2];
  REQUIRE(pipe(ends) == 0 && dup2(ends[1], number) == number && close(ends[0]) == 0, "pipe");
}

/* At the end of the process, behind all handlers that were set later: waits for the end of its input. */
static void linger() {
  char line[64];
  while (fgets(line, sizeof line, stdin) != nullptr) {}
}

/* `edges stderr FILE`, `edges full-stderr` and `edges closed-stderr` begin anew with that for standard error. */
int main(int argc, char **argv) {
  if (argc > 1) {
    int fd = argc > 2 ? open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (strcmp(argv[1], "full-stderr") == 0) full_pipe(2);
    else if (strcmp(argv[1], "closed-stderr") == 0) closed_pipe(2);
    else REQUIRE(fd >= 0 && dup2(fd, 2) == 2 && close(fd) == 0, "%s: %s", argv[2], strerror(errno));
    execl("/proc/self/exe", argv[0], nullptr);
    FAIL("execl");
  }
  char line[512], words[3][256];
  int count = 0, events = -1;
  while (fgets(line, sizeof line, stdin) != nullptr) {
    int n = sscanf(line, "%255s %255s %255s", words[0], words[1], words[2]);
    std::string word = n > 0 ? words[0] : "";
    if (word == "start") {
      start();
    } else if (word == "work") {
      start();
      for (int i = 0; i < atoi(words[1]); i++) {
        sum->launch(stream, 5);
        CHECK(hipStreamSynchronize(stream));
      }
    } else if (word == "burst") {
      start();
      for (int i = 0; i < atoi(words[1]); i++) launch_busy(stream, MS / 5);
      CHECK(hipStreamSynchronize(stream));
    } else if (word == "query") {
      hipEvent_t event = new_event();
      sum->launch(stream, 5);
      CHECK(hipEventRecord(event, stream));
      while (hipEventQuery(event) == hipErrorNotReady) sched_yield();
    } else if (word == "rival") {
      rival();
    } else if (word == "beside") {
      beside();
    } else if (word == "calm") {
      calm = true;
    } else if (word == "behind") {
      own.wait(behind);
    } else if (word == "linger") {
      REQUIRE(atexit(linger) == 0, "atexit");
    } else if (word == "exit") {
      printf("exit\n");
      return 0;
    } else if (word == "filter") {
      filter(words[1], words[2]);
    } else if (word == "nothreads") {
      no_threads = true;
    } else if (word == "close") {
      for (int fd = atoi(words[1]); fd <= atoi(words[2]); fd++) close(fd);
    } else if (word == "files") {
      /* So many files with these first letters of their names. */
      for (int i = 0; i < atoi(words[2]); i++) {
        int fd = open((words[1] + std::to_string(count++)).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        REQUIRE(fd >= 0 && write(fd, "DATA", 4) == 4, "%s: %s", words[1], strerror(errno));
      }
    } else if (word == "no-file-growth") {
      struct rlimit none = {0, 0};
      REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0, "setrlimit");
    } else if (word == "eventfd") {
      /* One of the program's own at all numbers from there to there. */
      events = eventfd(5, EFD_NONBLOCK | EFD_SEMAPHORE);
      for (int fd = atoi(words[1]); fd <= atoi(words[2]); fd++) dup2(events, fd);
    } else if (word == "count") {
      unsigned long value, all = 0;
      while (read(events, &value, sizeof value) == sizeof value) all += value;
      printf("%lu\n", all);
      continue;
    } else if (word == "numbers") {
      numbers();
      continue;
    } else if (word == "setenv") {
      setenv(words[1], words[2], 1);
    } else if (word == "fork") {
      /* The child goes on, and its parent waits. */
      pid_t child = fork();
      int status = 0;
      REQUIRE(child >= 0, "fork");
      if (child != 0) _exit(waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
    } else {
      FAIL("what is %s", line);
    }
    printf("%s\n", words[0]);
  }
  start();
  printf("%016llx\n", sum->check("the work"));
  return passed();
}
