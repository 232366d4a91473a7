// run: plain
/* Static objects: one uses HIP before main, and both free what they have, with work pending, after it. Before main a
 * program's own kernels need not be known yet, and after it
 * they are forgotten, so that one copies and fills only. */
#include "work.h"

static bool main_has_begun = false;

struct Holder {
  hipStream_t stream;
  Sum *sum;
  const char *name;
  bool from_main = main_has_begun;
  Holder(const char *name, gw_u64 seed) : name(name) {
    stream = new_stream();
    sum = new Sum(seed);
    CHECK(hipStreamSynchronize(nullptr));
    if (main_has_begun) sum->launch(stream, 5);
    else CHECK(hipMemsetAsync(sum->device, 0x22, sum->want.size() * sizeof(gw_u64), stream));
    if (!main_has_begun) sum->want.assign(sum->want.size(), 0x2222222222222222ull);
  }
  ~Holder() {
    if (from_main) sum->launch(stream, 5);
    CHECK(hipStreamSynchronize(stream));
    printf("%s at the end: %016llx\n", name, sum->check("a static object's work"));
    sum->release();
    CHECK(hipStreamDestroy(stream));
    if (!from_main) passed();
  }
};

static Holder &before_main() {
  static Holder holder("before main", 1);
  return holder;
}
static hipStream_t early = before_main().stream;

int main() {
  main_has_begun = true;
  static Holder later("in main", 2);
  CHECK(hipStreamSynchronize(early));
  puts("main");
  return 0;
}
