// run: plain
/* The process ends with work pending on several streams, by exit, quick_exit or _exit. Each way in a child of its own. */
#include "processes.h"
#include "work.h"

static void said() {
  static const char text[] = "handler\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(99);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    std::string way = argv[1];
    atexit(said);
    at_quick_exit(said);
    hipStream_t streams[4];
    for (auto &stream : streams) stream = new_stream();
    Sum sum(1);
    for (auto stream : streams) launch_busy(stream, 4 * MS);
    for (auto stream : streams) sum.launch(stream, 5);
    sum.launch(nullptr, 5);
    launch_mix(hipStreamPerThread, sum.device, sum.device, sum.want.size(), 1);
    if (way == "return") return 11;
    if (way == "exit") exit(12);
    if (way == "quick_exit") quick_exit(13);
    _exit(14);
  }
  for (const char *way : {"return", "exit", "quick_exit", "_exit"}) {
    Child child = start_self({way});
    std::string line = child.line();
    int status = child.end();
    printf("%s: %s, %d\n", way, line.c_str(), status);
  }
  return passed();
}
