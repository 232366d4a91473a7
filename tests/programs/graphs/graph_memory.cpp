// run: from-hip 6
/* Graphs that allocate and free their memory: launched again and again behind pending work, one behind the other and beside other work
 * of the stream, and memory that outlives its launch. */
#include "check.h"

static const size_t N = 1500;

/* Parameters of a kernel node: mix(dst, src, N, value). */
struct Mix {
  gw_u64 *dst, *src;
  gw_u32 count = N;
  gw_u64 value;
  void *arguments[4];
  hipKernelNodeParams params = {};
  Mix(gw_u64 *to, gw_u64 *from, gw_u64 v) : dst(to), src(from), value(v) {
    void *list[] = {&dst, &src, &count, &value};
    memcpy(arguments, list, sizeof list);
    params.func = (void *)mix;
    params.gridDim = dim3((unsigned)((N + 255) / 256));
    params.blockDim = dim3(256);
    params.kernelParams = arguments;
  }
};

static gw_u64 *add_allocation(hipGraph_t graph, hipGraphNode_t *node, const std::vector<hipGraphNode_t> &behind) {
  hipMemAllocNodeParams params = {};
  params.poolProps.allocType = hipMemAllocationTypePinned;
  params.poolProps.location.type = hipMemLocationTypeDevice;
  params.bytesize = N * 8;
  CHECK(hipGraphAddMemAllocNode(node, graph, behind.data(), behind.size(), &params));
  REQUIRE(params.dptr != nullptr, "no address");
  return (gw_u64 *)params.dptr;
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);
  CHECK(hipDeviceSynchronize());

  /* Memory of its own as a place between: a is copied there, mixed with b, and copied back. */
  hipGraph_t graph;
  hipGraphNode_t made, in, mixed, out, gone;
  CHECK(hipGraphCreate(&graph, 0));
  gw_u64 *between = add_allocation(graph, &made, {});
  CHECK(hipGraphAddMemcpyNode1D(&in, graph, &made, 1, between, a, N * 8, hipMemcpyDeviceToDevice));
  Mix one(between, b, 5);
  CHECK(hipGraphAddKernelNode(&mixed, graph, &in, 1, &one.params));
  CHECK(hipGraphAddMemcpyNode1D(&out, graph, &mixed, 1, a, between, N * 8, hipMemcpyDeviceToDevice));
  CHECK(hipGraphAddMemFreeNode(&gone, graph, &out, 1, between));
  hipMemAllocNodeParams told = {};
  CHECK(hipGraphMemAllocNodeGetParams(made, &told));
  REQUIRE(told.dptr == between && told.bytesize == N * 8, "%p, %zu bytes", told.dptr, told.bytesize);
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  launch_busy(stream, 5 * MS);
  for (gw_u64 round = 0; round < 20; round++) {
    CHECK(hipGraphLaunch(exec, stream));
    cpu_mix(wa, wb, 5);
    launch_mix(stream, b, a, N, round);
    cpu_mix(wb, wa, round);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, wa, "memory of the graph's own");
  SAME_WORDS(b, wb, "the work around it");
  printf("%016llx\n", digest_of(wa));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));

  /* Memory that the graph leaves: its user frees it on the stream. */
  CHECK(hipGraphCreate(&graph, 0));
  gw_u64 *left = add_allocation(graph, &made, {});
  CHECK(hipGraphAddMemcpyNode1D(&in, graph, &made, 1, left, a, N * 8, hipMemcpyDeviceToDevice));
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (gw_u64 round = 0; round < 4; round++) {
    launch_busy(stream, 1 * MS);
    CHECK(hipGraphLaunch(exec, stream));
    launch_mix(stream, b, left, N, round);
    cpu_mix(wb, wa, round);
    CHECK(hipFreeAsync(left, stream));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(b, wb, "memory that the graph left");
  printf("%016llx\n", digest_of(wb));
  show("trimmed", hipDeviceGraphMemTrim(0));
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
