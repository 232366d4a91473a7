// run: loads plugin_linked
/* A program and a library that it loads (RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND) send work for the same words to the same stream in turn. */
#include "plugin.h"
#include "work.h"

int main(int, char **argv) {
  Plugin plugin = load_plugin(argv[1], RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  for (hipStream_t stream : {new_stream(), (hipStream_t) nullptr}) {
    Sum sum(1);
    CHECK(hipDeviceSynchronize());
    for (int i = 0; i < 30; i++) {
      sum.launch(stream, 3);
      gw_u64 first = 1000 * (gw_u64)i;
      plugin.launch(stream, sum.device, sum.want.size(), first, 2);
      sum.replayed(first, 2);
    }
    CHECK(hipStreamSynchronize(stream));
    printf("%016llx\n", sum.check("in turn"));
    sum.release();
  }
  return passed();
}
