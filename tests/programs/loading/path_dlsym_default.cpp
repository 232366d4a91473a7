// run: unlinked | loads module_kernels
/* A program that is not linked with HIP opens the runtime for everybody, and finds its names in the default scope. */
#include "by_name.h"

static void *runtime;
static void *look_up(const char *name) { return dlsym(RTLD_DEFAULT, name); }

int main(int, char **argv) {
  runtime = dlopen(RUNTIME, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(runtime != nullptr, "%s", dlerror());
  work_by_name(look_up, argv[1]);
  return passed();
}
