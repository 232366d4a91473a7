// run: plain
/* A callback ends the process, by _exit and by quick_exit. */
#include "processes.h"
#include "work.h"

static void end_at_once(hipStream_t, hipError_t, void *) {
  static const char text[] = "callback\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(99);
  _exit(31);
}

static void end_quickly(hipStream_t, hipError_t, void *) {
  static const char text[] = "callback\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(99);
  quick_exit(32);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    hipStream_t stream = new_stream();
    Sum sum(1);
    CHECK(hipDeviceSynchronize());
    sum.launch(stream, 5);
    CHECK(hipStreamAddCallback(stream, strcmp(argv[1], "_exit") == 0 ? end_at_once : end_quickly, nullptr, 0));
    for (;;) pause();
  }
  for (const char *way : {"_exit", "quick_exit"}) {
    Child child = start_self({way});
    std::string line = child.line();
    int status = child.end();
    printf("%s: %s, %d\n", way, line.c_str(), status);
  }
  printf("%016llx\n", whole_work(new_stream(), 1, 60));
  return passed();
}
