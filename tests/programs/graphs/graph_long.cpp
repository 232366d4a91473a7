// run: plain
/* A graph of 500 kernels of 1 ms, each with a count behind it that the host sees, launched by one call. `graph_long steps` says
 * "ready", launches the graph with the first line of its input, and again with the next one when it is through; it answers each
 * line with how many kernels have ended. Without the word it just runs. */
#include <atomic>
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
  std::atomic<bool> through{true};
  unsigned runs = 0;
  auto run = [&] {
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    through = true;
  };
  auto start = [&] {
    if (launch.joinable()) launch.join();
    through = false;
    *count = 0;
    runs++;
    launch = std::thread(run);
  };
  char line[16];
  while (steps && fgets(line, sizeof line, stdin) != nullptr) {
    if (through) start();
    printf("%u\n", (runs - 1) * KERNELS + *count);
    fflush(stdout);
  }
  if (!launch.joinable()) start();
  launch.join();
  for (unsigned i = 0; i < runs * KERNELS; i++) cpu_mix(want, want, i % KERNELS);
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  /* 6.4.3 leaves fills of host memory in a graph out, natively as well. */
  const bool fills = version / 10000000 != 6;
  REQUIRE(!fills || *count == (unsigned)KERNELS, "%u of %d kernels", *count, KERNELS);
  SAME_WORDS(data, want, "the graph");
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  return passed();
}
