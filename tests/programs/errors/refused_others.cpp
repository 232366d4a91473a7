// run: plain
/* What HIP refuses of events, callbacks, values in memory, pools, graphs and captures by their arguments, each given wrong in turn
 * (docs/refusals.md). Left out: handles of events, streams, graphs and pools that are gone or none, which HIP follows, and
 * memory of no pool, which 5.2.3 frees like any, or dies of. */
#include "refused.h"

static void none(hipStream_t, hipError_t, void *) {}

int main() {
  const size_t SIZE = 1 << 16;
  begin_rows();
  char *d = device_alloc<char>(SIZE);
  std::vector<char> memory(SIZE);
  char *p = memory.data();
  hipEvent_t e;
  CHECK(hipEventCreate(&e));

  ROW(hipEventRecord(nullptr, s));
  ROW(hipStreamWaitEvent(s, nullptr, 0));
  ROW(hipStreamWaitEvent(s, e, 99));
#if HIP_VERSION_MAJOR >= 7
  ROW(hipEventRecordWithFlags(e, s, 99));
  ROW(hipEventRecordWithFlags(nullptr, s, 0));
#endif
  ROW(hipStreamAddCallback(s, nullptr, nullptr, 0));
  ROW(hipStreamAddCallback(s, none, nullptr, 5));
#if HIP_VERSION_MAJOR >= 6
  ROW(hipLaunchHostFunc(s, nullptr, nullptr));
#endif

  ROW(hipStreamWriteValue32(s, nullptr, 1, 0));
  ROW(hipStreamWriteValue64(s, nullptr, 1, 0));
  ROW(hipStreamWriteValue32(s, p, 1, 0));
  ROW(hipStreamWriteValue64(s, p, 1, 0));
  ROW(hipStreamWriteValue32(s, d, 1, 7));
  ROW(hipStreamWriteValue32(s, d + SIZE, 1, 0));
  ROW(hipStreamWriteValue64(s, d + SIZE, 1, 0));
  ROW(hipStreamWaitValue32(s, nullptr, 1, 0, ~0u));
  ROW(hipStreamWaitValue64(s, nullptr, 1, 0, ~0ull));
  TURN(hipStreamWaitValue32(s, d, 0, 9, ~0u));
  TURN(hipStreamWaitValue64(s, d, 0, 9, ~0ull));
  ROW(hipStreamWaitValue32(s, p, 0, 0, ~0u));
  ROW(hipStreamWaitValue64(s, p, 0, 0, ~0ull));
#if HIP_VERSION_MAJOR >= 6
  ROW(hipStreamBatchMemOp(s, 0, nullptr, 0));
  ROW(hipStreamBatchMemOp(s, 1, nullptr, 0));
  hipStreamBatchMemOpParams operation = {};
  operation.operation = (hipStreamBatchMemOpType)99;
  TURN(hipStreamBatchMemOp(s, 1, &operation, 0));
  ROW(hipStreamBatchMemOp(s, 257, &operation, 0));
#endif

  void *q = nullptr;
  ROW(hipFreeAsync(nullptr, s));
  ROW(hipMallocAsync(&q, 0, s));
  ROW(hipMallocAsync(nullptr, 64, s));
  TURN(hipMallocAsync(&q, 1ull << 50, s)); /* The library first gives back what is held. */
  ROW(hipMallocFromPoolAsync(&q, 64, nullptr, s));
  ROW(hipMallocFromPoolAsync(nullptr, 64, nullptr, s));
  TURN(hipStreamAttachMemAsync(s, nullptr, 0, 0));
  TURN(hipStreamAttachMemAsync(s, d, 0, 99));

  ROW(hipGraphLaunch(nullptr, s));
  hipGraph_t graph = nullptr;
  TURN(hipStreamEndCapture(s, nullptr));
  TURN(hipStreamEndCapture(s, &graph));
  TURN(hipStreamBeginCapture(s, (hipStreamCaptureMode)9));
  return end_rows();
}
