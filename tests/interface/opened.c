/* A program that opens the library by dlopen and is not preloaded, as plug-ins and Python modules do: `opened LIBRARY RUNTIME
 * first|last`. What the library exports works, whether the HIP runtime is there before it or after it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xsched/hip/hal.h"
#include "xsched/xsched.h"

static void *need(const char *what, void *found) {
  if (found == NULL) {
    const char *error = dlerror();
    fprintf(stderr, "%s: %s\n", what, error == NULL ? "not found" : error);
    exit(1);
  }
  return found;
}

static void expect(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(1);
}

typedef int StreamCreate(void **);
typedef XResult Wrap(HwQueueHandle *, void *);
typedef XResult Create(XQueueHandle *, HwQueueHandle, int64_t, int64_t);
typedef XResult OfQueue(XQueueHandle);

#define FUNCTION(type, name, symbol, handle) type *name = (type *)need(symbol, dlsym(handle, symbol))

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const int first = strcmp(argv[3], "first") == 0;
  void *runtime = first ? need(argv[2], dlopen(argv[2], RTLD_NOW)) : NULL;
  void *library = need(argv[1], dlopen(argv[1], RTLD_NOW));
  if (!first) runtime = need(argv[2], dlopen(argv[2], RTLD_NOW));

  /* Functions of libc that the library exports too. */
  void *(*their_dlopen)(const char *, int) = (void *(*)(const char *, int))need("dlopen", dlsym(library, "dlopen"));
  void *(*their_dlsym)(void *, const char *) = (void *(*)(void *, const char *))need("dlsym", dlsym(library, "dlsym"));
  void *math = need("libm.so.6", their_dlopen("libm.so.6", RTLD_NOW));
  expect(their_dlsym(math, "cos") == dlsym(math, "cos"), "dlsym finds cos");
  expect(their_dlsym(math, "no_such_function") == NULL, "dlsym finds nothing");
  expect(their_dlsym(RTLD_DEFAULT, "printf") == dlsym(RTLD_DEFAULT, "printf"), "dlsym finds printf");

  /* The interface, on a stream that was made past the library. */
  FUNCTION(StreamCreate, create_stream, "hipStreamCreate", runtime);
  FUNCTION(Wrap, wrap, "HipQueueCreate", library);
  FUNCTION(Create, create, "XQueueCreate", library);
  FUNCTION(OfQueue, wait_all, "XQueueWaitAll", library);
  FUNCTION(OfQueue, destroy, "XQueueDestroy", library);
  void *stream = NULL;
  HwQueueHandle hwq = 0;
  XQueueHandle xq = 0;
  expect(create_stream(&stream) == 0, "hipStreamCreate");
  expect(wrap(&hwq, stream) == kXSchedSuccess, "HipQueueCreate");
  expect(create(&xq, hwq, kPreemptLevelBlock, kQueueCreateFlagNone) == kXSchedSuccess, "XQueueCreate");
  expect(wait_all(xq) == kXSchedSuccess, "XQueueWaitAll");
  expect(destroy(xq) == kXSchedSuccess, "XQueueDestroy");
  printf("passed\n");
  return 0;
}
