// run: args 20 1 | every-mode
/* A part of a co-run: `rounds COUNT MILLISECONDS [each]` says "ready", waits for the end of its input, does COUNT rounds of a kernel of
 * that length and one that mixes, waits for them (for each one, with `each`), and prints the digest. */
#include "processes.h"

int main(int argc, char **argv) {
  REQUIRE(argc > 2, "usage: rounds COUNT MILLISECONDS [each]");
  const int count = atoi(argv[1]);
  const gw_u64 length = (gw_u64)atoi(argv[2]) * MS;
  const bool each = has_flag(argc, argv, "each");
  const size_t n = 1000;
  Words want = pattern_words(n, 3);
  gw_u64 *data = device_words(want);
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  launch_busy(stream, MS / 100);
  CHECK(hipStreamSynchronize(stream));
  printf("ready\n");
  wait_for_end_of_input();
  for (int i = 0; i < count; i++) {
    launch_busy(stream, length);
    launch_mix(stream, data, data, n, (gw_u64)i);
    cpu_mix(want, want, (gw_u64)i);
    if (each) CHECK(hipStreamSynchronize(stream));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "the rounds");
  printf("digest %016llx\n", digest_of(want));
  return passed();
}
