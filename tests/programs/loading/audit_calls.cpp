// loaded: library
/* An auditor (LD_AUDIT) that stands between a program and seven functions of HIP, and counts their calls in a file (GIVEWAY_AUDIT): it lives in
 * a namespace of its own, where the program cannot ask it. Like `audit` it saves one pointer a function, the last that anybody was bound to. */
#include <link.h>

#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long *calls;

#define NAMES(each)                                                                                       \
  each(hipModuleLaunchKernel) each(hipLaunchKernel) each(hipMemcpy) each(hipMemcpyAsync)                  \
      each(hipStreamSynchronize) each(hipEventRecord) each(hipStreamWaitEvent)

enum Number {
#define NUMBER(name) OF_##name,
  NAMES(NUMBER) ALL
};

/* `saved`, and the function that stands before it. */
template <Number number, typename Function>
struct Between;

template <Number number, typename... Arguments>
struct Between<number, hipError_t (*)(Arguments...)> {
  static hipError_t (*saved)(Arguments...);
  static hipError_t call(Arguments... arguments) {
    __atomic_fetch_add(&calls[number], 1, __ATOMIC_RELAXED);
    return saved(arguments...);
  }
};

template <Number number, typename... Arguments>
hipError_t (*Between<number, hipError_t (*)(Arguments...)>::saved)(Arguments...);

extern "C" unsigned la_version(unsigned version) {
  const char *path = getenv("GIVEWAY_AUDIT");
  const int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file < 0 || ftruncate(file, ALL * sizeof *calls) != 0) return 0;
  void *mapped = mmap(nullptr, ALL * sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return 0;
  calls = (unsigned long *)mapped;
  return version;
}

/* Only what is bound to HIP, and to the library, which has its names: libraries with a million symbols would take minutes. */
extern "C" unsigned la_objopen(struct link_map *map, Lmid_t, uintptr_t *) {
  const bool hip = strstr(map->l_name, "/libamdhip64.so") || strstr(map->l_name, "/libshimhip.so");
  return LA_FLG_BINDFROM | (hip ? LA_FLG_BINDTO : 0);
}

extern "C" uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned, uintptr_t *, uintptr_t *, unsigned *, const char *name) {
#define BIND(function)                                                 \
  if (strcmp(name, #function) == 0) {                                  \
    using Stands = Between<OF_##function, decltype(&function)>;        \
    Stands::saved = (decltype(&function))symbol->st_value;             \
    return (uintptr_t)Stands::call;                                    \
  }
  NAMES(BIND)
  return symbol->st_value;
}
