// run: plain
/* A program whose runtime has enabled debugging, as ROCr does from 5.5 on (with "plain" not), and that does a step of work when
 * it is told to: a line of input submits one, each further line asks for it, until it is complete. At the end of the input
 * the memory is what the steps make of it. */
#include <dlfcn.h>
#include <errno.h>

#include "check.h"
#include "kfd.h"

static bool enable = true;
static bool asked = false;

/* ROCr calls this one: the executable's definition comes before libc's. */
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  static int (*const real)(int, unsigned long, void *) =
      (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  if (enable && !asked && kfd_creates_queue(request)) {
    asked = true;
    kfd_runtime_enable runtime = {0, 1, 0};
    /* A newer runtime has done it. */
    REQUIRE(real(fd, KFD_RUNTIME_ENABLE, &runtime) == 0 || errno == EBUSY, "RUNTIME_ENABLE: %s", strerror(errno));
  }
  return real(fd, request, argument);
}

int main(int argc, char **argv) {
  enable = !has_flag(argc, argv, "plain");
  hipStream_t stream;
  hipEvent_t end;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
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
  char line[64];
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
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "the steps");
  return passed();
}
