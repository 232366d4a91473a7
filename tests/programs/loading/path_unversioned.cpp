// run: loads plugin_unversioned
/* A library that refers to HIP's functions without a version finds those of the program that loads it. */
#include "plugin.h"
#include "work.h"

int main(int, char **argv) {
  Plugin plugin = load_plugin(argv[1], RTLD_LAZY | RTLD_LOCAL);
  for (int i = 0; i < 3; i++) printf("%016llx\n", plugin.work(i % 2, (gw_u64)i));
  Sum sum(1);
  hipStream_t stream = new_stream();
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 20; i++) {
    sum.launch(stream, 2);
    plugin.launch(stream, sum.device, sum.want.size(), 500, 2);
    sum.replayed(500, 2);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("in turn"));
  return passed();
}
