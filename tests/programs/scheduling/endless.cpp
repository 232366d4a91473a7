// run: args urgent 130 | every-mode
/* A busy program: rounds of a kernel that takes time and one that changes memory, until its input ends.
 *
 * usage: endless urgent|low [ROUNDS] [LOG]
 *
 * "low" has work back to back; "urgent" has it again and again, in bursts with a pause of its own between. Both keep a
 * few rounds submitted ahead. ROUNDS is how many (0: until the input ends, and at least 20). LOG gets the
 * CLOCK_MONOTONIC time in nanoseconds, 8 bytes, of each round that has completed. At the end the memory is what the
 * rounds make of it on the processor. */
#include <errno.h>
#include <fcntl.h>

#include "processes.h"

static const size_t ELEMENTS = 4096;
static const gw_u64 LEAST = 20;
static const size_t AHEAD = 8;
static const gw_u64 SEED = 0x726F756E6473ull;

struct Kind {
  const char *name;
  gw_u64 round_ns;   /* what a round takes on an idle device */
  gw_u64 burst;      /* rounds before a pause; 0: there are none */
  useconds_t pause;  /* microseconds, in which the program has no work for the device */
};
static const Kind KINDS[] = {{"low", 1 * MS, 0, 0}, {"urgent", 2 * MS, 60, 30000}};

int main(int argc, char **argv) {
  const Kind *kind = nullptr;
  for (const Kind &known : KINDS) {
    if (argc > 1 && strcmp(argv[1], known.name) == 0) kind = &known;
  }
  REQUIRE(kind != nullptr, "usage: endless urgent|low [ROUNDS] [LOG]");
  const gw_u64 wanted = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
  const int log = argc > 3 ? open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  REQUIRE(argc <= 3 || log >= 0, "%s: %s", argv[3], strerror(errno));

  hipStream_t stream;
  hipEvent_t ends[AHEAD];
  CHECK(hipStreamCreate(&stream));
  for (hipEvent_t &end : ends) CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming));
  const Words start = pattern_words(ELEMENTS, SEED), source = pattern_words(ELEMENTS, SEED + 1);
  gw_u64 *words = device_words(start), *from = device_words(source);
  /* The copies were on the null stream. Nobody synchronizes it from here on: that it is idle has to show by itself, or
   * the program would never be. */

  gw_u64 submitted = 0, completed = 0;
  auto complete_one = [&] {
    CHECK(hipEventSynchronize(ends[completed % AHEAD]));
    completed++;
    const gw_u64 now = now_ns();
    REQUIRE(log < 0 || write(log, &now, sizeof now) == (ssize_t)sizeof now, "log: %s", strerror(errno));
  };
  auto enough = [&] { return wanted > 0 ? submitted >= wanted : submitted >= LEAST && input_has_ended(); };
  while (!enough()) {
    if (submitted - completed == AHEAD) complete_one();
    launch_busy(stream, kind->round_ns);
    launch_mix(stream, words, from, ELEMENTS, submitted);
    CHECK(hipEventRecord(ends[submitted % AHEAD], stream));
    submitted++;
    if (kind->burst > 0 && submitted % kind->burst == 0) {
      while (completed < submitted) complete_one();
      usleep(kind->pause);
    }
  }
  while (completed < submitted) complete_one();

  Words expected = start;
  for (gw_u64 round = 0; round < submitted; round++) cpu_mix(expected, source, round);
  const Words got = read_words(words, ELEMENTS);
  REQUIRE(digest_of(got) == digest_of(expected), "after %llu rounds the digest is %016llx, not %016llx", submitted,
          digest_of(got), digest_of(expected));
  /* Only what was asked for is the same in every run. */
  if (wanted > 0) printf("%llu rounds: %016llx\n", submitted, digest_of(got));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
