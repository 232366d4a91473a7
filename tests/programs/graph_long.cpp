// run: plain
/* A graph of 500 kernels of 1 ms, each with a count behind it that the host sees, launched by one call. `graph_long steps` says
 * "ready", launches the graph with the first line of its input, and answers each line with the count; without the word it just
 * runs. */
#include <thread>

#include "processes.h"

static const int KERNELS = 500;

int main(int argc, char **argv) {
  const bool steps = has_flag(argc, argv, "steps");
  const gw_u64 length = steps ? 1 * MS : MS / 50;
  const size_t n = 256;
  Words want = pattern_words(n, 11);
  gw_u64 *data = device_words(want);
  volatile unsigned *count = nullptr;
  CHECK(hipHostMalloc((void **)&count, 4, 0));
  *count = 0;
  hipStream_t stream;
  hipGraph_t graph;
  hipGraphExec_t exec;
  CHECK(hipStreamCreate(&stream));
  launch_busy(stream, MS / 100);
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (int i = 0; i < KERNELS; i++) {
    launch_busy(stream, length);
    launch_mix(stream, data, data, n, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    CHECK(hipMemsetD32Async((hipDeviceptr_t)count, i + 1, 1, stream));
  }
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  if (steps) {
    printf("ready\n");
    fflush(stdout);
  }
  /* 5.2.3 comes back from the launch when most of the graph has run. */
  std::thread launch;
  auto run = [&] {
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
  };
  char line[16];
  while (steps && fgets(line, sizeof line, stdin) != nullptr) {
    if (!launch.joinable()) launch = std::thread(run);
    printf("%u\n", *count);
    fflush(stdout);
  }
  if (!launch.joinable()) launch = std::thread(run);
  launch.join();
  REQUIRE(*count == (unsigned)KERNELS, "%u of %d kernels", *count, KERNELS);
  SAME_WORDS(data, want, "the graph");
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  return passed();
}
