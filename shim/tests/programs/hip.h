/* The few HIP functions that the test programs call, and what they ask about themselves. */
#ifndef HIP_H
#define HIP_H
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint32_t x, y, z; } dim3;
int hipLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int hipModuleLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);
int hipLaunchByPtr(const void *);
int hipMemGetInfo(size_t *, size_t *);
int hipMemcpy(void *, const void *, size_t, int);
int hipMalloc(void **, size_t);
int hipFree(void *);
int hipStreamCreate(void **);
int hipStreamQuery(void *);
int hipStreamSynchronize(void *);
void **__hipRegisterFatBinary(const void *);

static inline int launch(void) {
    dim3 one = {1, 1, 1};
    return hipLaunchKernel((void *)launch, one, one, 0, 0, 0);
}

/* Which library an address lies in: "shim", "runtime", "nowhere", or the file's name. */
static inline const char *where(const void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info)) return "nowhere";
    const char *name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    if (strstr(name, "libshimhip")) return "shim";
    if (strstr(name, "libamdhip64")) return "runtime";
    return name;
}

static inline int entries(const char *directory) {
    int count = 0;
    DIR *open = opendir(directory);
    while (open && readdir(open)) count++;
    if (open) closedir(open);
    return count;
}
#endif
