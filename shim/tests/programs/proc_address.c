/* Functions that the runtime hands out itself (6.x on). Argument: the runtime's file name. */
#include "hip.h"

int main(int count, char **arguments) {
    void *runtime = count > 1 ? dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!runtime) return puts(dlerror()), 1;
    int (*get)(const char *, void **, int, uint64_t, int *);
    int (*entry)(const char *, void **, unsigned long long, int *);
    *(void **)&get = dlsym(runtime, "hipGetProcAddress");
    *(void **)&entry = dlsym(runtime, "hipGetDriverEntryPoint");
    const char *names[] = {"hipModuleLaunchKernel", "hipDrvLaunchKernelEx", "hipGetDevice", "hipNoSuchFunction"};
    for (int i = 0; i < 4; i++) {
        void *address = NULL;
        int status = 9, result = get(names[i], &address, 70000000, 0, &status);
        printf("%s %d %d %s\n", names[i], result, status, where(address));
        address = NULL, status = 9, result = entry(names[i], &address, 0, &status);
        printf("%s %d %d %s\n", names[i], result, status, where(address));
    }
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    get("hipModuleLaunchKernel", (void **)&launch, 70000000, 0, NULL);
    printf("called %d\n", launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    return 0;
}
