// run: unlinked | loads plugin_linked
/* A program that is not linked with HIP loads a library that is, for itself alone, as Python does. */
#include "plugin.h"

int main(int, char **argv) {
  Plugin plugin = load_plugin(argv[1], RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < 4; i++) printf("%016llx\n", plugin.work(i % 2, (unsigned long long)i));
  puts("ok");
}
