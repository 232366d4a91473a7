// run: plain
/* Handlers of the end that were registered after HIP had started use HIP: work, waits, frees. */
#include "work.h"

static hipStream_t stream;
static Sum *sum;

static void last() {
  puts("last handler");
  CHECK(hipStreamDestroy(stream));
  passed();
}

static void first() {
  sum->launch(stream, 10);
  CHECK(hipStreamSynchronize(stream));
  printf("first handler %016llx\n", sum->check("work of the end"));
  sum->release();
  printf("fresh %016llx\n", whole_work(nullptr, 3));
}

int main() {
  stream = new_stream();
  sum = new Sum(1);
  CHECK(hipDeviceSynchronize());
  atexit(last);
  atexit(first);
  sum->launch(stream, 10);
  puts("main is over");
  return 0;
}
