// run: plain
/* A graph that is described node by node, with the kernel that another stream launches at the same time: neither gets the
 * other's arguments. */
#include "capture.h"

int main() {
  hipStream_t stream = new_stream(), other = new_stream();
  Sum plain(1), described(2);
  CHECK(hipDeviceSynchronize());
  for (int round = 0; round < 120; round++) {
    plain.launch(other, 4);
    hipGraph_t graph;
    CHECK(hipGraphCreate(&graph, 0));
    gw_u64 *device = described.device, value = (gw_u64)round;
    gw_u32 count = (gw_u32)described.want.size();
    void *arguments[] = {&device, &device, &count, &value};
    hipKernelNodeParams params = {};
    params.func = (void *)mix;
    params.gridDim = dim3((count + 255) / 256);
    params.blockDim = dim3(256);
    params.kernelParams = arguments;
    hipGraphNode_t node = nullptr;
    CHECK(hipGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    hipGraphExec_t exec = instance_of(graph);
    for (int i = 0; i < 2; i++) {
      plain.launch(other, 1);
      CHECK(hipGraphLaunch(exec, stream));
      described.replayed(value, 1);
      CHECK(hipStreamSynchronize(stream));
      value += 1000;
      CHECK(hipGraphExecKernelNodeSetParams(exec, node, &params));
    }
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(graph));
  }
  CHECK(hipDeviceSynchronize());
  printf("%016llx %016llx\n", plain.check("plain work"), described.check("described work"));
  return passed();
}
