// run: plain
/* Jumps out of functions that have launched; HIP's own frames are not on the stack. */
#include <setjmp.h>

#include "work.h"

static jmp_buf back;
static volatile bool jumps = true;

static void __attribute__((noinline)) launch_and_jump(Sum &sum, hipStream_t stream, int depth) {
  sum.launch(stream, 1);
  if (depth > 0) launch_and_jump(sum, stream, depth - 1);
  else if (jumps) longjmp(back, 1);
}

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  for (volatile int i = 0; i < 50; i = i + 1) {
    if (setjmp(back) == 0) launch_and_jump(sum, stream, i % 5);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("work between jumps"));
  return passed();
}
