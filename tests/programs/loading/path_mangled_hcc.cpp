// run: unlinked | loads module_kernels
/* hipHccModuleLaunchKernel by its C++ name. */
#include "by_name.h"

static void *runtime;
static void *look_up(const char *name) { return dlsym(runtime, name); }

int main(int, char **argv) {
  runtime = dlopen(RUNTIME, RTLD_LAZY | RTLD_LOCAL);
  REQUIRE(runtime != nullptr, "%s", dlerror());
  work_by_name(look_up, argv[1], HCC_MODULE);
  return passed();
}
