// run: plain
/* A child of a process that uses HIP makes HIP calls itself: what each says, each in a child of its own, with work pending
 * in the parent. */
#include <signal.h>

#include "processes.h"
#include "work.h"

template <typename F> static void in_child(const char *what, F &&body) {
  fflush(stdout);
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  pid_t child = fork();
  REQUIRE(child >= 0, "fork: %s", strerror(errno));
  if (child == 0) {
    alarm(20);
    int code = (int)body();
    REQUIRE(write(ends[1], &code, sizeof code) == (ssize_t)sizeof code, "write: %s", strerror(errno));
    _exit(0);
  }
  close(ends[1]);
  int code = -1, status = 0;
  const char *said = read(ends[0], &code, sizeof code) == (ssize_t)sizeof code ? hipGetErrorName((hipError_t)code) : "nothing";
  close(ends[0]);
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
  printf("%s: %s, status %x\n", what, said, status);
}

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 30 * MS);
  sum.launch(stream, 10);
  int number = 0;
  in_child("device count", [&] { return hipGetDeviceCount(&number); });
  in_child("current device", [&] { return hipGetDevice(&number); });
  in_child("set device", [&] { return hipSetDevice(0); });
  in_child("a wrong device", [&] { return hipSetDevice(7); });
  in_child("last error", [&] { return hipGetLastError(); });
  in_child("attribute", [&] { return hipDeviceGetAttribute(&number, hipDeviceAttributeWarpSize, 0); });
  in_child("version", [&] { return hipRuntimeGetVersion(&number); });
  in_child("event made", [&] { hipEvent_t other; return hipEventCreate(&other); });
  in_child("pointer", [&] { hipPointerAttribute_t said; return hipPointerGetAttributes(&said, sum.device); });
  in_child("no memory freed", [&] { return hipFree(nullptr); });
  in_child("memory", [&] { void *memory = nullptr; return hipMalloc(&memory, 4096); });
  sum.launch(stream, 10);
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the parent's work"));
  return passed();
}
