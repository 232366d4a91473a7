/* Measures suspension, resumption and an online request by libgpreempt_poc.so, against the limits of the proof of concept:
 * 5 ms, 10 ms, 50 ms. No offline kernel may be done while the offline program is suspended.
 *
 * usage: measure [ROUNDS [--not-suspended]]
 *
 * With --not-suspended nothing is suspended, and each round lasts until an offline kernel is done.
 *
 * The offline program is a child of this process that keeps the GPU busy with kernels of 20 ms and suspends itself when it is
 * asked to. (From outside it works the same way with its process number; that needs a runtime that has enabled the
 * driver's debugging support, as ROCm does from 5.5 on.) The online request is a kernel of 1 ms in this process: from the
 * decision to preempt until its result is there. */
#include <hip/hip_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "giveway_kernels.h"
#include "gpreempt_poc.h"

#define CHECK(call)                                                             \
  do {                                                                          \
    hipError_t error = (call);                                                  \
    if (error != hipSuccess) {                                                  \
      fprintf(stderr, "%s: %s\n", #call, hipGetErrorString(error));             \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

static double now_ms() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* Fills the device for at least so many nanoseconds. */
static void work(hipStream_t stream, gw_u64 nanoseconds) {
  gw_u32 rounds = 1;
  void *arguments[] = {&nanoseconds, &rounds};
  CHECK(hipLaunchKernel((const void *)busy, dim3(4096), dim3(256), arguments, 0, stream));
}

struct Answer {
  int code;
  double ms;
  /* How many offline kernels were done before the order was obeyed ('r'), or after that (all others). */
  unsigned done;
};

/* The kernels of the offline program. Each stores its number in memory of the host, which needs no thread of the runtime: what
 * is suspended stores nothing. */
class Offline {
 public:
  Offline() {
    CHECK(hipStreamCreate(&stream_));
    CHECK(hipHostMalloc((void **)&word_, sizeof *word_, 0));
    *word_ = 0;
    CHECK(hipHostGetDevicePointer((void **)&device_word_, word_, 0));
  }

  void submit() {
    gw_u64 number = ++submitted_, nanoseconds = 20000000ull;
    gw_u32 rounds = 1;
    void *arguments[] = {&device_word_, &number, &nanoseconds, &rounds};
    CHECK(hipLaunchKernel((const void *)busy_store, dim3(4096), dim3(256), arguments, 0, stream_));
  }

  unsigned done() const { return (unsigned)*(volatile gw_u64 *)word_; }

  void do_one_more() {
    submit(); /* so that there is one */
    for (const unsigned before = done(); done() == before;) usleep(500);
  }

 private:
  hipStream_t stream_;
  gw_u64 *word_, *device_word_, submitted_ = 0;
};

/* The offline program: keeps kernels ahead, and obeys: 's' suspends, 'r' resumes, 'n' neither, 'w' waits until one more kernel
 * is done, and the end of its input ends it. */
static int offline(int orders, int answers) {
  if (gpreempt_poc_init(0) != 0) return 1;
  Offline kernels;
  /* 64 kernels are more than a second of work: enough for all rounds of a measurement is kept ahead. */
  for (int i = 0; i < 64; i++) kernels.submit();
  Answer ready = {0, 0, 0};
  if (write(answers, &ready, sizeof ready) != (ssize_t)sizeof ready) return 1;
  char order;
  while (read(orders, &order, 1) == 1) {
    Answer answer = {0, 0, 0};
    if (order == 'r') answer.done = kernels.done();
    const double begin = now_ms();
    if (order == 's') answer.code = gpreempt_suspend_queues(0, nullptr, 0);
    if (order == 'r') answer.code = gpreempt_resume_queues(0, nullptr, 0);
    if (order == 'w') kernels.do_one_more();
    answer.ms = now_ms() - begin;
    if (order != 'r') answer.done = kernels.done();
    if (write(answers, &answer, sizeof answer) != (ssize_t)sizeof answer) return 1;
    if (order == 'r') kernels.submit();
  }
  _exit(0);
}

static double median(std::vector<double> &times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

static const char *name_of(int code) {
  switch (code) {
    case GPREEMPT_EINVAL: return "GPREEMPT_EINVAL";
    case GPREEMPT_EPERM: return "GPREEMPT_EPERM";
    case GPREEMPT_ENOTSUP: return "GPREEMPT_ENOTSUP";
    case GPREEMPT_ETIMEDOUT: return "GPREEMPT_ETIMEDOUT";
    case GPREEMPT_EIO: return "GPREEMPT_EIO";
    case GPREEMPT_EAGAIN: return "GPREEMPT_EAGAIN";
    default: return "no code of gpreempt_poc.h";
  }
}

static int verdict(const char *what, std::vector<double> &times, double limit) {
  const double middle = median(times), worst = times.back();
  printf("%-10s median %7.3f ms  longest %7.3f ms  limit %4.0f ms: %s\n", what, middle, worst, limit,
         worst <= limit ? "met" : "missed");
  return worst <= limit ? 0 : 1;
}

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 20;
  const bool suspends = argc < 3;
  if (rounds < 1 || argc > 3 || (argc == 3 && strcmp(argv[2], "--not-suspended") != 0)) {
    fprintf(stderr, "usage: measure [ROUNDS [--not-suspended]]\n");
    return 2;
  }
  int orders[2], answers[2];
  if (pipe(orders) != 0 || pipe(answers) != 0) return 1;
  const pid_t child = fork(); /* before either process uses HIP */
  if (child == 0) {
    close(orders[1]);
    close(answers[0]);
    return offline(orders[0], answers[1]);
  }
  close(orders[0]);
  close(answers[1]);
  signal(SIGPIPE, SIG_IGN);

  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  work(stream, 1000000ull);
  CHECK(hipStreamSynchronize(stream));

  Answer answer;
  if (read(answers[0], &answer, sizeof answer) != (ssize_t)sizeof answer) {
    fprintf(stderr, "the offline program has ended\n");
    return 1;
  }
  std::vector<double> suspend, resume, online;
  auto order = [&](char what) {
    if (write(orders[1], &what, 1) != 1 || read(answers[0], &answer, sizeof answer) != (ssize_t)sizeof answer) {
      fprintf(stderr, "the offline program has ended\n");
      exit(1);
    }
    if (answer.code != 0) {
      fprintf(stderr, "%s: %d (%s)\n", what == 's' ? "gpreempt_suspend_queues" : "gpreempt_resume_queues", answer.code,
              name_of(answer.code));
      exit(1);
    }
  };
  unsigned kept_back = 0;
  for (int round = 0; round < rounds; round++) {
    const double begin = now_ms();
    order(suspends ? 's' : 'n');
    const unsigned before = answer.done;
    suspend.push_back(answer.ms);
    work(stream, 1000000ull);
    CHECK(hipStreamSynchronize(stream));
    online.push_back(now_ms() - begin);
    order(suspends ? 'r' : 'w');
    resume.push_back(answer.ms);
    kept_back += answer.done == before;
    usleep(3000); /* the offline program works on */
  }
  close(orders[1]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const int missed = verdict("suspend", suspend, 5) + verdict("resume", resume, 10) + verdict("online", online, 50);
  printf("offline    no kernel done while suspended in %u of %d rounds: %s\n", kept_back, rounds,
         kept_back == (unsigned)rounds ? "met" : "missed");
  return missed == 0 && kept_back == (unsigned)rounds ? 0 : 1;
}
