// run: plain
/* Executable graphs that are changed, updated and destroyed right behind their launches: a launch means the graph as it
 * was then. Graphs of nodes and captured ones, a graph in a graph, and what the runtime refuses. */
#include "check.h"

static const size_t N = 1200;

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

int main() {
  hipStream_t stream, side;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  CHECK(hipStreamCreate(&side));
  Words wa = pattern_words(N, 1), wb = pattern_words(N, 2);
  gw_u64 *a = device_words(wa), *b = device_words(wb);

  hipGraph_t graph;
  hipGraphNode_t first, second, fill;
  CHECK(hipGraphCreate(&graph, 0));
  {
    Mix one(a, b, 1), two(b, a, 2);
    CHECK(hipGraphAddKernelNode(&first, graph, nullptr, 0, &one.params));
    CHECK(hipGraphAddKernelNode(&second, graph, &first, 1, &two.params));
  }
  hipMemsetParams zero = {};
  zero.dst = a;
  zero.elementSize = 4;
  zero.width = 8;
  zero.height = 1;
  zero.value = 7;
  CHECK(hipGraphAddMemsetNode(&fill, graph, &second, 1, &zero));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  auto model = [&](gw_u64 x, gw_u64 y) {
    cpu_mix(wa, wb, x);
    cpu_mix(wb, wa, y);
    gw_u32 sevens[8];
    for (gw_u32 &word : sevens) word = 7;
    memcpy(wa.data(), sevens, sizeof sevens);
  };

  /* Changed between launches, which the device has not begun. */
  launch_busy(stream, 5 * MS);
  for (gw_u64 round = 0; round < 12; round++) {
    Mix one(a, b, 10 + round);
    CHECK(hipGraphExecKernelNodeSetParams(exec, first, &one.params));
    CHECK(hipGraphLaunch(exec, stream));
    model(10 + round, 2);
    launch_mix(stream, b, a, N, 100 + round);
    cpu_mix(wb, wa, 100 + round);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, wa, "changed nodes");
  SAME_WORDS(b, wb, "changed nodes");
  printf("changed %016llx\n", digest_of(wb));

  /* A whole new content for the same shape. */
  hipGraph_t other;
  hipGraphNode_t node, culprit;
  CHECK(hipGraphClone(&other, graph));
  {
    Mix one(a, b, 33);
    CHECK(hipGraphNodeFindInClone(&node, first, other));
    CHECK(hipGraphKernelNodeSetParams(node, &one.params));
  }
  CHECK(hipGraphLaunch(exec, stream));
  model(21, 2);
  hipGraphExecUpdateResult result;
  CHECK(hipGraphExecUpdate(exec, other, &culprit, &result));
  CHECK(hipGraphLaunch(exec, stream));
  model(33, 2);
  /* Launched on two streams, the second after the first. */
  hipEvent_t event;
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  CHECK(hipEventRecord(event, stream));
  CHECK(hipStreamWaitEvent(side, event, 0));
  CHECK(hipGraphLaunch(exec, side));
  model(33, 2);
  /* Destroyed while its launches may be anywhere. */
  CHECK(hipGraphDestroy(graph));
  CHECK(hipGraphDestroy(other));
  CHECK(hipGraphExecDestroy(exec));
  launch_mix(side, a, b, N, 50);
  cpu_mix(wa, wb, 50);
  CHECK(hipStreamSynchronize(side));
  SAME_WORDS(a, wa, "updated");
  SAME_WORDS(b, wb, "updated");
  printf("updated %016llx\n", digest_of(wb));

  /* Many that live for one launch. */
  for (gw_u64 round = 0; round < 20; round++) {
    hipStream_t target = round % 3 == 0 ? nullptr : stream;
    hipGraph_t inner, outer;
    hipGraphNode_t child;
    CHECK(hipGraphCreate(&inner, 0));
    CHECK(hipGraphCreate(&outer, 0));
    Mix one(a, b, 200 + round), two(b, a, 300 + round);
    CHECK(hipGraphAddKernelNode(&first, inner, nullptr, 0, &one.params));
    CHECK(hipGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
    CHECK(hipGraphAddKernelNode(&second, outer, &child, 1, &two.params));
    CHECK(hipGraphInstantiate(&exec, outer, nullptr, nullptr, 0));
    CHECK(hipGraphLaunch(exec, target));
    cpu_mix(wa, wb, 200 + round);
    cpu_mix(wb, wa, 300 + round);
    CHECK(hipGraphExecDestroy(exec));
    CHECK(hipGraphDestroy(outer));
    CHECK(hipGraphDestroy(inner));
    /* The default stream and this one do not wait for each other. */
    CHECK(hipStreamSynchronize(target));
  }
  SAME_WORDS(a, wa, "many");
  SAME_WORDS(b, wb, "many");
  printf("many %016llx\n", digest_of(wb));

  EXPECT(hipGraphLaunch(nullptr, stream), hipErrorInvalidValue);
  EXPECT(hipGraphExecDestroy(nullptr), hipErrorInvalidValue);
  EXPECT(hipGraphDestroy(nullptr), hipErrorInvalidValue);
  CHECK(hipEventDestroy(event));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipStreamDestroy(side));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return passed();
}
