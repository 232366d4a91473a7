// run: unlinked | loads module_kernels
/* Names looked up with their version, by handle. */
#include "by_name.h"

static void *runtime;
static void *look_up(const char *name) { return dlvsym(runtime, name, "hip_4.2"); }

int main(int, char **argv) {
  runtime = dlopen(RUNTIME, RTLD_LAZY | RTLD_LOCAL);
  REQUIRE(runtime != nullptr, "%s", dlerror());
  work_by_name(look_up, argv[1]);
  return passed();
}
