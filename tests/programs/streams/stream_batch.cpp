// run: from-hip 6
/* hipStreamBatchMemOp: waits and writes of several words at once; the list belongs to the call and is overwritten behind
 * it. What the runtime does not know, and what is empty, it refuses, with work pending as well. */
#include "work.h"

typedef std::vector<hipStreamBatchMemOpParams> Batch;

static hipStreamBatchMemOpParams wait_for(volatile uint64_t *word, uint64_t value, unsigned condition, bool wide) {
  hipStreamBatchMemOpParams one;
  memset((void *)&one, 0, sizeof one);
  one.operation = wide ? hipStreamMemOpWaitValue64 : hipStreamMemOpWaitValue32;
  one.waitValue.address = (hipDeviceptr_t)word;
  one.waitValue.value64 = value;
  one.waitValue.flags = condition;
  return one;
}

static hipStreamBatchMemOpParams write_of(volatile uint64_t *word, uint64_t value, bool wide) {
  hipStreamBatchMemOpParams one;
  memset((void *)&one, 0, sizeof one);
  one.operation = wide ? hipStreamMemOpWriteValue64 : hipStreamMemOpWriteValue32;
  one.writeValue.address = (hipDeviceptr_t)word;
  one.writeValue.value64 = value;
  return one;
}

static hipError_t batch(hipStream_t stream, Batch list, unsigned flags = 0) {
  hipError_t code = hipStreamBatchMemOp(stream, (unsigned)list.size(), list.data(), flags);
  memset((void *)list.data(), 0xFF, list.size() * sizeof list[0]);
  return code;
}

static volatile uint64_t *signal_word() {
  void *memory = nullptr;
  CHECK(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory));
  *(volatile uint64_t *)memory = 0;
  return (volatile uint64_t *)memory;
}

/* The operations of one list happen side by side, each in a work-item of its own: none may wait for another one. */
static void work(hipStream_t stream, hipStream_t other, volatile uint64_t *gate, volatile uint64_t *one,
                 volatile uint64_t *two) {
  Sum sum(1), second(2);
  uint64_t *plain = nullptr;
  CHECK(hipHostMalloc((void **)&plain, 64, hipHostMallocDefault));
  memset(plain, 0, 64);
  CHECK(hipDeviceSynchronize());

  /* The host opens. */
  *one = 1;
  for (uint64_t round = 2; round <= 9; round++) {
    bool wide = round % 2 == 0;
    sum.launch(stream, 2);
    CHECK(batch(stream, {wait_for(gate, round, hipStreamWaitValueGte, wide),
                         wait_for(one, round - 1, hipStreamWaitValueEq, wide)}));
    CHECK(batch(stream, {write_of(one, round, wide), write_of(plain, 100 + round, true),
                         write_of(plain + 1, 200 + round, false)}));
    sum.launch(stream, 2);
    EXPECT(hipStreamQuery(stream), hipErrorNotReady);
    REQUIRE(*one == round - 1, "round %d: written before the wait was over", (int)round);
    *gate = round;
    CHECK(hipStreamSynchronize(stream));
    printf("%d: %d %d %d\n", (int)round, (int)*one, (int)plain[0], (int)plain[1]);
  }

  /* Two streams that wait for each other's words. */
  *one = *two = 0;
  for (uint64_t round = 1; round <= 20; round++) {
    sum.launch(stream, 1);
    CHECK(batch(stream, {write_of(one, round, true)}));
    CHECK(batch(other, {wait_for(one, round, hipStreamWaitValueGte, true)}));
    second.launch(other, 1);
    CHECK(batch(other, {write_of(two, round, true), write_of(gate, round, true)}));
    CHECK(batch(stream, {wait_for(two, round, hipStreamWaitValueGte, true)}));
  }
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipStreamSynchronize(other));
  printf("%016llx %016llx\n", sum.check("behind words"), second.check("behind the other's words"));
}

int main() {
  hipStream_t stream = new_stream(), other = new_stream();
  Sum sum(3);
  volatile uint64_t *gate = signal_word(), *one = signal_word(), *two = signal_word();
  CHECK(hipDeviceSynchronize());
  /* 7.2.4 refuses every list: it looks whether `operation == Barrier || FlushRemoteWrites`, of which the second is a
   * constant (ihipBatchMemOperation in hip_stream_ops.cpp). */
  hipError_t first = batch(stream, {write_of(one, 1, true)});
  printf("one write: %s\n", hipGetErrorName(first));
  if (first == hipSuccess) work(stream, other, gate, one, two);
  sum.launch(stream, 3);
  for (bool pending : {false, true}) {
    printf("%s\n", pending ? "behind work" : "on an empty stream");
    if (pending) sum.launch(stream, 3);
    hipStreamBatchMemOpParams unknown = write_of(one, 1, true), barrier = unknown;
    unknown.operation = (hipStreamBatchMemOpType)77;
    barrier.operation = hipStreamMemOpBarrier;
    show("no list", hipStreamBatchMemOp(stream, 1, nullptr, 0));
    show("nothing in it", batch(stream, {}));
    show("257 of them", batch(stream, Batch(257, write_of(one, 1, true))));
    show("an unknown one", batch(stream, {unknown}));
    show("a barrier", batch(stream, {barrier}));
    show("flags", batch(stream, {write_of(one, 1, true)}, 1));
  }
  CHECK(hipStreamSynchronize(stream));
  printf("afterwards %016llx\n", sum.check("after all of it"));
  return passed();
}
