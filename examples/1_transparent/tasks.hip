/* An ordinary HIP program: it submits some tasks and says when each of them is done. It knows nothing of giveway.
 *
 * usage: tasks NAME COUNT STEPS
 *
 * Each of the COUNT tasks takes STEPS times 50 ms if it has the device to itself.
 *
 * It begins when it gets a line of input, so that run.sh can start two of them and choose which one begins first. */
#include "tasks.h"

int main(int argc, char **argv) {
  if (argc != 4 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1) {
    fprintf(stderr, "usage: tasks NAME COUNT STEPS\n");
    return 2;
  }
  say_lines_at_once();
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  {
    Tasks tasks(argv[1], stream, atoi(argv[2]), atoi(argv[3]));
    printf("%s: ready\n", argv[1]);
    getchar();
    tasks.submit();
    tasks.wait();
  }
  CHECK(hipStreamDestroy(stream));
  return 0;
}
