// run: loads preload_hip
/* Another interposer of HIP functions, preloaded before the others: it sees every call. */
#include "preload.h"

int main(int, char **argv) {
  preload(argv, argv[1], true);
  hipStream_t stream = new_stream();
  Sum sum(1);
  for (int i = 0; i < 20; i++) {
    sum.launch(stream, 2);
    CHECK(hipStreamSynchronize(stream));
  }
  printf("%d launches, %d waits, %016llx\n", interposed(0), interposed(1), sum.check("work"));
  return passed();
}
