// run: --vram 64 | args 40 | killed | every-mode
/* Made to be killed: holds memory and a minute-long kernel (with work behind it), says "ready", and waits. */
#include "processes.h"

int main(int argc, char **argv) {
  const size_t gib = argc > 1 ? (size_t)atol(argv[1]) : 40;
  unsigned char *p = device_alloc<unsigned char>(gib * GIB);
  gw_u64 *words = (gw_u64 *)p;
  hipStream_t streams[3];
  for (auto &stream : streams) {
    CHECK(hipStreamCreate(&stream));
    launch_busy(stream, 60000 * MS);
    for (int i = 0; i < 100; i++) launch_mix(stream, words, words, 1000, (gw_u64)i);
  }
  EXPECT(hipStreamQuery(streams[0]), hipErrorNotReady);
  printf("ready\n");
  wait_for_end_of_input();
  FAIL("the harness let go of a program that it should have killed");
}
