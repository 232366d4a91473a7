// run: from-hip 6
/* (Up to 6.2 the runtime itself mixes up the arguments of a kernel that is captured beside its launches: ADR 0013.)
 * One thread captures again and again, in each mode, while three others launch on streams of their own. */
#include <atomic>
#include <thread>

#include "capture.h"

int main() {
  std::atomic<bool> over(false);
  std::atomic<int> ready(0);
  std::vector<std::thread> threads;
  std::vector<Sum> sums;
  for (int i = 0; i < 3; i++) sums.emplace_back((gw_u64)i);
  Sum captured(10);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([&, i] {
      hipStream_t stream = new_stream();
      for (int round = 0; round < 300 || !over.load(); round++) {
        /* Launches only: a wait is forbidden while somebody captures in global mode. */
        if (round < 300) sums[(size_t)i].launch(stream, 2);
        else std::this_thread::yield();
        if (round == 3) ready++;
      }
    });
  }
  until([&] { return ready == 3; });
  hipStream_t stream = new_stream();
  for (int round = 0; round < 60; round++) {
    CHECK(hipStreamBeginCapture(stream, MODES[round % 3]));
    for (gw_u64 i = 0; i < 3; i++)
      launch_mix(stream, captured.device, captured.device, captured.want.size(), (gw_u64)round + i);
    hipGraph_t graph;
    CHECK(hipStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(hipGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 3, "round %d: %zu nodes", round, nodes);
    hipGraphExec_t exec = instance_of(graph);
    CHECK(hipGraphLaunch(exec, stream));
    captured.replayed((gw_u64)round, 3);
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  over = true;
  for (auto &thread : threads) thread.join();
  CHECK(hipDeviceSynchronize());
  printf("captured %016llx\n", captured.check("captured work"));
  for (auto &sum : sums) printf("thread %016llx\n", sum.check("a thread's work"));
  return passed();
}
