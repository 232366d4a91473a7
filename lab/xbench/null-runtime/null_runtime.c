/* A HIP runtime whose functions do nothing, so that a call takes only the time of the path to it.
 *
 * It has all exports of libamdhip64 under the real version nodes; build.rs generates the functions that only return 0 from
 * the lists of hip-sys/data. The functions below keep enough of the real behaviour for a program to run: handles, host
 * memory, look-up by name, and a call of the runtime to an export of its own. This is no model of a GPU; gpu-sim is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t x, y, z; } dim3;
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_READY = 600 };

/* The number of launches. It is not atomic, because the measurement launches from one thread. */
static volatile long module_launches;

int hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, void *stream) {
    (void)function, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
    return SUCCESS;
}

int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)params, (void)extra;
    module_launches++;
    return SUCCESS;
}

/* As in the real runtime, this call goes through the PLT, and so to a library that interposes the other function. */
int hipLaunchByPtr(const void *function) {
    return hipModuleLaunchKernel((void *)function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
}

/* The events that were recorded, by any thread. Every event is complete at once. */
static long records;

int hipEventRecord(void *event, void *stream) {
    (void)event, (void)stream;
    __atomic_fetch_add(&records, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

/* The "free" memory is the number of module launches, the "total" one that of recorded events: how a test sees what
 * arrived. */
int hipMemGetInfo(size_t *free, size_t *total) {
    *free = (size_t)module_launches;
    *total = (size_t)__atomic_load_n(&records, __ATOMIC_RELAXED);
    return SUCCESS;
}

int hipGetDeviceCount(int *count) {
    *count = 1;
    return SUCCESS;
}

int hipDriverGetVersion(int *version) {
    *version = NULL_RUNTIME_MAJOR * 10000000;
    return SUCCESS;
}

int hipRuntimeGetVersion(int *version) {
    return hipDriverGetVersion(version);
}

int hipMalloc(void **memory, size_t size) {
    *memory = malloc(size ? size : 1);
    return *memory ? SUCCESS : 2;
}

int hipFree(void *memory) {
    free(memory);
    return SUCCESS;
}

int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)kind;
    memcpy(to, from, size);
    return SUCCESS;
}

static char stream, event;

int hipStreamCreate(void **created) {
    *created = &stream;
    return SUCCESS;
}

int hipStreamCreateWithFlags(void **created, unsigned flags) {
    (void)flags;
    return hipStreamCreate(created);
}

int hipEventCreate(void **created) {
    *created = &event;
    return SUCCESS;
}

int hipEventCreateWithFlags(void **created, unsigned flags) {
    (void)flags;
    return hipEventCreate(created);
}

/* Sets errno, as a runtime that has made a system call may. */
int hipStreamQuery(void *which) {
    (void)which;
    errno = ENOLINK;
    return NOT_READY;
}

void **__hipRegisterFatBinary(const void *binary) {
    (void)binary;
    static void *handle;
    return &handle;
}

const char *hipGetErrorName(int error) {
    return error == SUCCESS ? "hipSuccess" : "hipErrorUnknown";
}

const char *hipGetErrorString(int error) {
    return hipGetErrorName(error);
}

#if NULL_RUNTIME_MAJOR >= 6
static int find(const char *symbol, void **address, int *status) {
    if (!symbol || !address) return INVALID_VALUE;
    Dl_info self;
    void *library = dladdr((void *)find, &self) ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    *address = library ? dlsym(library, symbol) : NULL;
    if (library) dlclose(library);
    if (status) *status = *address ? 0 : 1;
    return *address ? SUCCESS : INVALID_VALUE;
}

int hipGetProcAddress(const char *symbol, void **address, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    return find(symbol, address, status);
}
#endif

#if NULL_RUNTIME_MAJOR >= 7
int hipGetDriverEntryPoint(const char *symbol, void **address, unsigned long long flags, int *status) {
    (void)flags;
    return find(symbol, address, status);
}

int hipGetDriverEntryPoint_spt(const char *symbol, void **address, unsigned long long flags, int *status) {
    return hipGetDriverEntryPoint(symbol, address, flags, status);
}
#endif
