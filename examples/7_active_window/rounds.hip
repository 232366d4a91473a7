/* A program whose work comes in rounds, as that of a program with a window does.
 *
 * usage: rounds NAME
 *
 * Each line of its input is a number: the program does two tasks, of so many times 50 ms of the device each, and says when
 * they are done. It ends with its input. */
#include "tasks.h"

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: rounds NAME\n");
    return 2;
  }
  say_lines_at_once();
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  /* The code is on the device now, and the server knows the stream's queue. */
  Tasks(argv[1], stream, 1, 1);
  printf("%s: ready\n", argv[1]);
  for (int steps; scanf("%d", &steps) == 1 && steps > 0;) {
    Tasks tasks(argv[1], stream, 2, steps);
    tasks.submit();
    tasks.wait();
  }
  CHECK(hipStreamDestroy(stream));
  return 0;
}
