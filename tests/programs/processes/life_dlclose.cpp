// run: loads plugin_linked
/* A library with kernels is loaded, used, and unloaded with work of it just done, again and again, while the program's own
 * work goes on. */
#include "plugin.h"
#include "work.h"

int main(int, char **argv) {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  gw_u64 digests = 0;
  for (int i = 0; i < 12; i++) {
    sum.launch(stream, 4);
    Plugin plugin = load_plugin(argv[1], RTLD_NOW | RTLD_LOCAL);
    digests ^= plugin.work(i % 2, (gw_u64)i);
    plugin.launch(stream, sum.device, sum.want.size(), 100, 3);
    sum.replayed(100, 3);
    sum.launch(stream, 4);
    /* Its kernels must have run before it goes. */
    CHECK(hipStreamSynchronize(stream));
    REQUIRE(dlclose(plugin.handle) == 0, "%s", dlerror());
  }
  printf("%016llx %016llx\n", digests, sum.check("work beside libraries that come and go"));
  return passed();
}
