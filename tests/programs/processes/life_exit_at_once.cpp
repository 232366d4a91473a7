// run: plain
/* With any argument a process leaves by _exit() after its work, as each worker of Python's multiprocessing does: no handler runs. */
#include "processes.h"
#include "work.h"

int main(int argc, char **) {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 5; i++) sum.launch(stream, 10);
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("the work"));
  wait_for_end_of_input();
  if (argc == 1) return passed();
  printf("ok\n");
  _exit(0);
}
