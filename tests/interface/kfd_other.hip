/* xsched/kfd.h on another process: a child, whose runtime has enabled debugging. The parent waits for all its children in a
 * thread of its own, as a shell or a server of jobs does, and learns of this one's end as if nobody had looked at it. */
#include "check.h"
#include "kfd_seen.h"
#include "xsched/kfd.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

static void result_at(XKfdResult got, XKfdResult want, int line, const char *what) {
  if (got != want) fail_at(__FILE_NAME__, line, what, "result %d, expected %d", (int)got, (int)want);
}
#define GIVES(call, want) result_at((call), (want), __LINE__, #call)
#define FINE(call) GIVES(call, kXKfdSuccess)

static void enable_debugging(int fd) {
  kfd_runtime_enable runtime = {0, 1, 0};
  REQUIRE(real_ioctl(fd, KFD_RUNTIME_ENABLE, &runtime) == 0 || errno == EBUSY, "RUNTIME_ENABLE: %s", strerror(errno));
}

static volatile sig_atomic_t signals = 0;

/* Steps of work by request: "s" submits one, "?" asks whether all are complete, "n" how many signals came. */
static int child(int input, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGUSR1, [](int) { signals = signals + 1; });
  before_first_queue = enable_debugging;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(1000, 5);
  gw_u64 *data = device_words(want);
  launch_busy(stream, 1 * MS);
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "what was copied, by queues that are made for it");
  gw_u64 step = 0;
  char request, answer = 'r';
  while (write(output, &answer, 1) == 1 && read(input, &request, 1) == 1) {
    if (request == 's') {
      launch_busy(stream, 5 * MS);
      launch_mix(stream, data, data, want.size(), step);
      cpu_mix(want, want, step++);
      answer = 's';
    } else if (request == '?') {
      const hipError_t state = hipStreamQuery(stream);
      if (state != hipErrorNotReady) CHECK(state);
      answer = state == hipErrorNotReady ? 'p' : 'c';
    } else {
      answer = (char)('0' + signals);
    }
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "the steps");
  return 42;
}

static int requests, answers;

static char tell(char request) {
  char answer = 0;
  REQUIRE(write(requests, &request, 1) == 1, "the child does not listen");
  REQUIRE(read(answers, &answer, 1) == 1, "the child does not answer");
  return answer;
}

static void stands_still() {
  REQUIRE(never_in(200 * MS, [] { return tell('?') != 'p'; }), "what takes 5 ms is done");
}

static void gets_on() {
  until([] { return tell('?') == 'c'; });
}

int main() {
  int down[2], up[2];
  REQUIRE(pipe(down) == 0 && pipe(up) == 0, "pipes");
  const pid_t pid = fork();
  if (pid == 0) {
    close(down[1]);
    close(up[0]);
    _exit(child(down[0], up[1]));
  }
  close(down[0]);
  close(up[1]);
  requests = down[1];
  answers = up[0];
  char ready = 0;
  REQUIRE(read(answers, &ready, 1) == 1 && ready == 'r', "the child did not start");
  std::atomic<int> ended{-1}, others{0};
  std::thread waiting([&] {
    int status = 0;
    for (pid_t found; (found = waitpid(-1, &status, 0)) > 0;) {
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        if (found == pid) ended = status;
      } else {
        others++;
      }
    }
  });

  XKfdSession session = 0, second = 0;
  FINE(XKfdOpen(&session, pid));
  GIVES(XKfdOpen(&second, pid), kXKfdErrorNoPermission);
  uint32_t count = 0;
  FINE(XKfdListQueues(session, nullptr, &count));
  std::vector<XKfdQueue> queues(count);
  FINE(XKfdListQueues(session, queues.data(), &count));
  uint32_t compute = ~0u, copies = ~0u;
  for (const XKfdQueue &queue : queues) {
    REQUIRE(queue.state == kXKfdQueueStateMapped, "queue %u is off", queue.queue_id);
    (queue.type == kXKfdQueueCompute ? compute : copies) = queue.queue_id;
  }
  REQUIRE(compute != ~0u && copies != ~0u, "%u queues", count);
  XKfdQueueState state;
  auto is = [&](uint32_t id) {
    FINE(XKfdStatus(session, id, &state));
    return state;
  };

  /* Copy engines are left alone, by name and with all; with one of them nothing is taken. */
  const uint32_t both[] = {compute, copies}, wrong[] = {compute, 4711};
  GIVES(XKfdSuspend(session, &copies, 1), kXKfdErrorInvalidValue);
  GIVES(XKfdSuspend(session, both, 2), kXKfdErrorInvalidValue);
  GIVES(XKfdSuspend(session, wrong, 2), kXKfdErrorNotFound);
  REQUIRE(is(compute) == kXKfdQueueStateMapped, "a refused suspension held a queue");
  FINE(XKfdSuspend(session, nullptr, 0));
  REQUIRE(is(compute) == kXKfdQueueStateSuspended && is(copies) == kXKfdQueueStateMapped, "states");
  REQUIRE(tell('s') == 's', "submitted");
  stands_still();
  GIVES(XKfdResume(session, wrong, 2), kXKfdErrorNotFound);
  REQUIRE(is(compute) == kXKfdQueueStateMapped, "all are tried");
  FINE(XKfdResume(session, nullptr, 0));
  gets_on();

  /* Requests by the hundred while signals come: none is lost, and who waits for children hears only of their ends, or of the
   * stop at a signal as with any tracer. */
  for (int i = 0; i < 9; i++) {
    const int before = tell('n');
    REQUIRE(kill(pid, SIGUSR1) == 0, "kill");
    for (int j = 0; j < 10; j++) is(compute);
    until([&] { return tell('n') != before; });
  }
  REQUIRE(tell('n') == '9', "signals were lost");

  /* Closed, it goes on. */
  FINE(XKfdSuspend(session, &compute, 1));
  REQUIRE(tell('s') == 's', "submitted");
  FINE(XKfdClose(session));
  gets_on();

  /* It ends while the session is open, and is asked nothing any more. */
  FINE(XKfdOpen(&session, pid));
  FINE(XKfdSuspend(session, nullptr, 0));
  FINE(XKfdResume(session, nullptr, 0));
  close(requests);
  waiting.join();
  REQUIRE(WIFEXITED(ended) && WEXITSTATUS(ended) == 42, "status %x, and %d others", (int)ended, (int)others);
  count = 0;
  GIVES(XKfdListQueues(session, nullptr, &count), kXKfdErrorNotFound);
  GIVES(XKfdSuspend(session, nullptr, 0), kXKfdErrorNotFound);
  FINE(XKfdClose(session));
  GIVES(XKfdClose(session), kXKfdErrorNotFound);
  return passed();
}
