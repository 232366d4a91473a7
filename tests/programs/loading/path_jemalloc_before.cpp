// run: plain
/* jemalloc preloaded before the others. */
#include "preload.h"

int main(int, char **argv) {
  preload(argv, "libjemalloc.so.2", true);
  REQUIRE(dlsym(RTLD_DEFAULT, "mallctl") != nullptr, "jemalloc is not there");
  for (int i = 0; i < 4; i++) printf("%016llx\n", whole_work(new_stream(), (gw_u64)i));
  return passed();
}
