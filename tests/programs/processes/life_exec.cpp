// run: plain
/* A process that has used HIP, and still has work pending, becomes another program that uses it again: three times. */
#include <unistd.h>

#include "work.h"

int main(int argc, char **argv) {
  int round = argc > 1 ? atoi(argv[1]) : 0;
  hipStream_t stream = new_stream();
  printf("round %d %016llx\n", round, whole_work(stream, (gw_u64)round));
  if (round == 3) return passed();
  Sum sum(9);
  launch_busy(stream, 5 * MS);
  sum.launch(stream, 20);
  fflush(stdout);
  char name[] = "self", next[] = {(char)('1' + round), 0};
  char *arguments[] = {name, next, nullptr};
  execv("/proc/self/exe", arguments);
  FAIL("execv");
}
