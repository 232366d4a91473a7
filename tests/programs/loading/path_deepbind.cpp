// run: unlinked | loads plugin_linked
/* The same with RTLD_DEEPBIND: the library looks among what it was loaded with before anywhere else. */
#include "plugin.h"

int main(int, char **argv) {
  Plugin plugin = load_plugin(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  for (int i = 0; i < 4; i++) printf("%016llx\n", plugin.work(i % 2, (unsigned long long)i));
  puts("ok");
}
