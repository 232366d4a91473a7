/* What the libraries plugin_* offer to the programs that load them. All of it is done by their own links to HIP. */
#ifndef GIVEWAY_TESTS_PLUGIN_H
#define GIVEWAY_TESTS_PLUGIN_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* A piece of work from allocation to free, on a stream that the plugin makes (0) or on the default one (1); its digest. */
typedef unsigned long long (*PluginWork)(int on_default, unsigned long long seed);
/* So many kernels, on somebody else's stream and words: mix with the values `first` and so on. */
typedef void (*PluginLaunch)(void *stream, unsigned long long *words, unsigned long count, unsigned long long first,
                             int kernels);

struct Plugin {
  void *handle;
  PluginWork work;
  PluginLaunch launch;
};

static inline void *plugin_symbol(void *handle, const char *name) {
  void *found = dlsym(handle, name);
  if (found == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return found;
}

static inline Plugin load_plugin(const char *path, int flags) {
  void *handle = dlopen(path, flags);
  if (handle == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return {handle, (PluginWork)plugin_symbol(handle, "plugin_work"),
          (PluginLaunch)plugin_symbol(handle, "plugin_launch")};
}

#endif
