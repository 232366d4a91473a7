// run: plain
/* A program whose runtime has enabled debugging, as ROCr does from 5.5 on (with "plain" not), and that does a step of work when
 * it is told to: a line of input submits one, each further line asks for it, until it is complete. At the end of the input
 * the memory is what the steps make of it; with "leaves" main returns at once. With "early" it waits for a line before it
 * launches anything. */
#include "check.h"
#include "kfd_seen.h"

/* As newer runtimes do by themselves. */
static void enable_debugging(int fd) {
  kfd_runtime_enable runtime = {0, 1, 0};
  REQUIRE(real_ioctl(fd, KFD_RUNTIME_ENABLE, &runtime) == 0 || errno == EBUSY, "RUNTIME_ENABLE: %s", strerror(errno));
}

int main(int argc, char **argv) {
  if (!has_flag(argc, argv, "plain")) before_first_queue = enable_debugging;
  hipStream_t stream;
  hipEvent_t end;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
  char line[64];
  if (has_flag(argc, argv, "early")) {
    printf("ready\n");
    REQUIRE(fgets(line, sizeof line, stdin), "no line");
  }
  Words want = pattern_words(1000, 5);
  gw_u64 *data = device_words(want);
  gw_u64 steps = 0;
  auto submit = [&] {
    launch_busy(stream, 5 * MS);
    launch_mix(stream, data, data, want.size(), steps);
    CHECK(hipEventRecord(end, stream));
    cpu_mix(want, want, steps++);
  };
  submit();
  CHECK(hipStreamSynchronize(stream));
  printf("ready\n");
  bool pending = false;
  while (fgets(line, sizeof line, stdin)) {
    if (!pending) {
      submit();
      pending = true;
      printf("submitted\n");
    } else {
      hipError_t state = hipEventQuery(end);
      if (state != hipErrorNotReady) CHECK(state);
      pending = state == hipErrorNotReady;
      printf("%s\n", pending ? "pending" : "complete");
    }
  }
  if (has_flag(argc, argv, "leaves")) return passed();
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "the steps");
  return passed();
}
