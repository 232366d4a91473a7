// run: no-work
// A busy kernel is a fixed amount of work: the clock that it spins by goes on while a wave is off the hardware, and that time does not count.
// The kernel's own arithmetic is fed with the clock of a wave that is taken off twice.
#include "check.h"

namespace {

constexpr gw_u64 kTicksPerMs = 100'000;  // 100 MHz

/* How long it takes by the clock to work for 1 ms, looking every `step` ticks, with a hold of `held` ticks at two of the looks. */
gw_u64 span(gw_u64 step, gw_u64 held) {
  gw_u64 left = kTicksPerMs, now = 0;
  for (int look = 0; left; look++) {
    gw_u64 last = now;
    now += step;
    if (look == 3 || look == 40) now += held;
    left = gw_left(left, last, now);
  }
  return now;
}

}  // namespace

int main() {
  /* Alone: the time by the clock, to within one look. */
  for (gw_u64 step : {30ull, 100ull, 999ull}) {
    gw_u64 alone = span(step, 0);
    REQUIRE(alone >= kTicksPerMs && alone < kTicksPerMs + step, "%llu ticks", alone);
  }
  /* Held for 50 ms twice: that and the work, where a loop that compares two times would end after the first hold. */
  for (gw_u64 step : {30ull, 100ull, 500ull}) {
    gw_u64 held = 50 * kTicksPerMs, all = span(step, held);
    REQUIRE(all >= 2 * held + kTicksPerMs - 2 * GW_USUAL_STEP - 2 * step, "%llu ticks", all);
    REQUIRE(all <= 2 * held + kTicksPerMs + 3 * step, "%llu ticks", all);
  }
  /* The end is not missed when less is left than a step. */
  REQUIRE(gw_left(5, 100, 200) == 0, "%llu", gw_left(5, 100, 200));
  puts("ok");
}
