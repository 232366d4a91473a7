/* A program that starts itself again with one more library preloaded. */
#ifndef GIVEWAY_TESTS_PRELOAD_H
#define GIVEWAY_TESTS_PRELOAD_H

#include <dlfcn.h>
#include <unistd.h>

#include "work.h"

/* With this library in front of what is preloaded already, or behind it. Returns in the program that was started so. */
static inline void preload(char **argv, const char *library, bool before) {
  if (getenv("GIVEWAY_TEST_PRELOADED") != nullptr) return;
  const char *rest = getenv("LD_PRELOAD");
  std::string all = library;
  if (rest != nullptr && *rest != 0) all = before ? all + ":" + rest : std::string(rest) + ":" + all;
  setenv("LD_PRELOAD", all.c_str(), 1);
  setenv("GIVEWAY_TEST_PRELOADED", "1", 1);
  execv("/proc/self/exe", argv);
  FAIL("execv");
}

/* What the preloaded library has counted. */
static inline int interposed(int which) {
  auto count = (int (*)(int))dlsym(RTLD_DEFAULT, "interposed");
  REQUIRE(count != nullptr, "the library is not preloaded");
  return count(which);
}

#endif
