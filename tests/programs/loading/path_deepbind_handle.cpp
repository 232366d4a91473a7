// run: unlinked | loads module_kernels
/* The runtime itself is opened with RTLD_DEEPBIND. */
#include "by_name.h"

static void *runtime;
static void *look_up(const char *name) { return dlsym(runtime, name); }

int main(int, char **argv) {
  runtime = dlopen(RUNTIME, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  REQUIRE(runtime != nullptr, "%s", dlerror());
  work_by_name(look_up, argv[1]);
  return passed();
}
