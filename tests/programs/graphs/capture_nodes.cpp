// run: plain
/* Copies and fills that are captured become nodes, which work on the memory as it is at each launch. */
#include "capture.h"

int main() {
  const size_t n = 512, bytes = n * sizeof(gw_u64);
  hipStream_t stream = new_stream();
  gw_u64 *a = device_alloc<gw_u64>(n), *b = device_alloc<gw_u64>(n);
  gw_u64 *in = nullptr, *out = nullptr;
  CHECK(hipHostMalloc((void **)&in, bytes, hipHostMallocDefault));
  CHECK(hipHostMalloc((void **)&out, bytes, hipHostMallocDefault));
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  CHECK(hipMemcpyAsync(a, in, bytes, hipMemcpyHostToDevice, stream));
  CHECK(hipMemsetAsync(b, 0x11, bytes, stream));
  launch_mix(stream, b, a, n, 42);
  CHECK(hipMemcpyAsync(a, b, bytes, hipMemcpyDeviceToDevice, stream));
  CHECK(hipMemcpyAsync(out, a, bytes, hipMemcpyDeviceToHost, stream));
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(stream, &graph));
  size_t count = 0;
  CHECK(hipGraphGetNodes(graph, nullptr, &count));
  std::vector<hipGraphNode_t> nodes(count);
  CHECK(hipGraphGetNodes(graph, nodes.data(), &count));
  for (auto node : nodes) {
    hipGraphNodeType type;
    CHECK(hipGraphNodeGetType(node, &type));
    printf("node of type %d\n", (int)type);
  }
  hipGraphExec_t exec = instance_of(graph);
  for (gw_u64 round = 0; round < 6; round++) {
    Words source = pattern_words(n, round), want(n, 0x1111111111111111ull);
    memcpy(in, source.data(), bytes);
    memset(out, 0, bytes);
    CHECK(hipGraphLaunch(exec, stream));
    CHECK(hipStreamSynchronize(stream));
    cpu_mix(want, source, 42);
    SAME(out, want.data(), bytes, "what came out of the graph");
    printf("round %016llx\n", digest_of(want));
  }
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
