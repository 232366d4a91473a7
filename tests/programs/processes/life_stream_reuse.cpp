// run: plain
/* Streams are destroyed with work pending and made again, of the other kind: a handle that comes again is a new stream. */
#include "work.h"

int main() {
  Sum sum(1), pending(2);
  hipEvent_t event = new_event();
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 120; i++) {
    bool independent = i % 2;
    hipStream_t stream = new_stream(independent ? hipStreamNonBlocking : hipStreamDefault);
    unsigned flags = 99;
    CHECK(hipStreamGetFlags(stream, &flags));
    REQUIRE(flags == (independent ? hipStreamNonBlocking : hipStreamDefault), "round %d: flags %u", i, flags);
    /* A new stream is idle, whatever became of the one that had its address. */
    EXPECT(hipStreamQuery(stream), hipSuccess);
    sum.launch(stream, 2);
    CHECK(hipEventRecord(event, stream));
    CHECK(hipStreamSynchronize(stream));
    /* Left behind. */
    pending.launch(stream, 2);
    CHECK(hipStreamDestroy(stream));
    if (i % 8 == 7) {
      CHECK(hipDeviceSynchronize());
      pending.check("work of streams that are gone");
    }
  }
  CHECK(hipDeviceSynchronize());
  printf("%016llx %016llx\n", sum.check("work"), pending.check("what they left behind"));
  return passed();
}
