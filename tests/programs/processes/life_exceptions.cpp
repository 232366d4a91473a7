// run: plain
/* Exceptions leave scopes whose objects free and destroy what has work pending. */
#include <stdexcept>

#include "work.h"

struct Scope {
  hipStream_t stream = new_stream();
  hipEvent_t event = new_event();
  Sum sum;
  gw_u64 *digest;
  Scope(gw_u64 seed, gw_u64 *digest) : sum(seed), digest(digest) { CHECK(hipStreamSynchronize(nullptr)); }
  ~Scope() {
    CHECK(hipStreamWaitEvent(stream, event, 0));
    CHECK(hipStreamSynchronize(stream));
    *digest ^= sum.check("work of a scope");
    sum.release();
    CHECK(hipEventDestroy(event));
    CHECK(hipStreamDestroy(stream));
  }
};

static void launch_and_throw(gw_u64 seed, gw_u64 *digest, int depth) {
  Scope scope(seed, digest);
  scope.sum.launch(scope.stream, 3);
  CHECK(hipEventRecord(scope.event, scope.stream));
  if (depth == 0) throw std::runtime_error("thrown");
  launch_and_throw(seed + 100, digest, depth - 1);
}

int main() {
  gw_u64 digest = 0;
  int caught = 0;
  for (int i = 0; i < 20; i++) {
    try {
      launch_and_throw((gw_u64)i, &digest, i % 4);
    } catch (const std::runtime_error &error) {
      caught++;
    }
  }
  printf("caught %d %016llx\n", caught, digest);
  return passed();
}
