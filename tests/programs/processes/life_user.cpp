// run: plain
/* The process gives up its rights for a while (seteuid), then for good (setresuid), with work before and after. */
#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

#include "work.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  sum.launch(stream, 10);
  REQUIRE(seteuid(65534) == 0, "seteuid: %s", strerror(errno));
  sum.launch(stream, 10);
  CHECK(hipStreamSynchronize(stream));
  printf("as another user %016llx\n", sum.check("as another user"));
  REQUIRE(seteuid(0) == 0, "seteuid: %s", strerror(errno));
  sum.launch(stream, 10);
  CHECK(hipStreamSynchronize(stream));
  printf("as before %016llx\n", sum.check("as before"));
  sum.launch(stream, 10);
  REQUIRE(setresuid(65534, 65534, 65534) == 0, "setresuid: %s", strerror(errno));
  sum.launch(stream, 10);
  sum.launch(hipStreamPerThread, 0);
  CHECK(hipStreamSynchronize(stream));
  printf("for good %016llx\n", sum.check("for good"));
  printf("%016llx\n", whole_work(new_stream(), 3));
  return passed();
}
