// run: loads audit
/* A program whose bindings are audited (LD_AUDIT) by somebody who stands between it and HIP. */
#include "work.h"

int main(int, char **argv) {
  if (getenv("LD_AUDIT") == nullptr) {
    setenv("LD_AUDIT", argv[1], 1);
    execv("/proc/self/exe", argv);
    FAIL("execv");
  }
  printf("%016llx\n", whole_work(new_stream(), 3));
  return passed();
}
