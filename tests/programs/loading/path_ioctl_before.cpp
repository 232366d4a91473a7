// run: unlinked | loads plugin_linked
/* A program that has its own `ioctl`, as a tracer or a sanitizer that comes before the others: it sees the runtime's requests to
 * the driver, also when libraries are loaded with RTLD_DEEPBIND beside it. */
#include <stdarg.h>

#include "plugin.h"

static int requests;

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  static int (*const next)(int, unsigned long, void *) =
      (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  if ((request >> 8 & 0xff) == 'K') __atomic_fetch_add(&requests, 1, __ATOMIC_SEQ_CST);
  return next(fd, request, argument);
}

static void look_up_beside(const char *library) {
  if (dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) == nullptr) puts(dlerror());
  if (dlsym(RTLD_DEFAULT, "malloc") == nullptr) puts("no malloc");
}

static void work(const Plugin &plugin, unsigned long long seed) {
  const int before = __atomic_load_n(&requests, __ATOMIC_SEQ_CST);
  printf("%016llx", plugin.work(0, seed));
  puts(__atomic_load_n(&requests, __ATOMIC_SEQ_CST) > before ? " seen" : " unseen");
}

int main(int, char **argv) {
  /* The driver's library has not looked its `ioctl` up yet. */
  look_up_beside("libm.so.6");
  Plugin plugin = load_plugin(argv[1], RTLD_LAZY | RTLD_LOCAL);
  work(plugin, 1);
  /* Now it has. */
  look_up_beside("libresolv.so.2");
  work(plugin, 2);
  puts("ok");
}
