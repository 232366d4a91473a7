// run: args 5
/* An urgent program that launches at intervals, as a service does: the conformance suite runs other programs beside it (mode `rival`).
 *
 * usage: rival ROUNDS; or rival, which says "ready" and goes on until the end of its input.
 *
 * A round is half a millisecond of work that it waits for, and twice that without. */

#include "processes.h"
#include "work.h"

namespace {

constexpr gw_u64 US = 1000;

}  // namespace

int main(int argc, char **argv) {
  const long rounds = argc > 1 ? atol(argv[1]) : -1;
  hipStream_t stream = new_stream();
  Sum sum(0x726976616Cull, 64);
  CHECK(hipDeviceSynchronize());
  for (long round = 0; rounds < 0 ? !input_has_ended() : round < rounds; round++) {
    launch_busy(stream, 500 * US);
    sum.launch(stream, 1);
    CHECK(hipStreamSynchronize(stream));
    if (round == 0) puts("ready");
    /* The interval is what it is about. */
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  CHECK(hipStreamDestroy(stream));
  sum.check("the rival's memory");
  sum.release();
  puts("ok");
}
