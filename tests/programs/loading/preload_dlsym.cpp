// loaded: library
/* A hook of dlsym to be preloaded: it counts look-ups of HIP's names and passes all of them on. */
#include <dlfcn.h>
#include <string.h>

static int count;

extern "C" int interposed(int) { return __atomic_load_n(&count, __ATOMIC_SEQ_CST); }

extern "C" void *dlsym(void *handle, const char *name) noexcept {
  typedef void *(*Dlsym)(void *, const char *);
  Dlsym next = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (next == nullptr) next = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (strncmp(name, "hip", 3) == 0) __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
  return next(handle, name);
}
