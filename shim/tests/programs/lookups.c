/* Every way to look a function up by name. Argument: the runtime's file name. */
#include "hip.h"

static void *by_name(void *handle, const char *name) {
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror();
    /* What the message says in detail differs; that there is one, and about what, does not. */
    printf("%-22s %s%s\n", name, where(found), error ? (strstr(error, name) ? ", error names it" : ", error") : "");
    return found;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    puts("before any runtime, RTLD_DEFAULT:");
    by_name(RTLD_DEFAULT, "hipLaunchKernel");
    puts("RTLD_LOCAL, by handle:");
    void *runtime = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL);
    if (!runtime) return puts(dlerror()), 1;
    int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
    *(void **)&launch = by_name(runtime, "hipLaunchKernel");
    dim3 one = {1, 1, 1};
    printf("called %d\n", launch((void *)main, one, one, 0, 0, 0));
    by_name(runtime, "hipGetDevice");
    by_name(runtime, "hipNoSuchFunction");
    by_name(runtime, "hipModuleLaunchCooperativeKernel");
    by_name(runtime, "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j");
    by_name(runtime, "malloc");
    puts("dlvsym:");
    printf("hip_4.2 %s\n", where(dlvsym(runtime, "hipLaunchKernel", "hip_4.2")));
    printf("hip_9.9 %s\n", where(dlvsym(runtime, "hipLaunchKernel", "hip_9.9")));
    puts("still local, RTLD_DEFAULT:");
    by_name(RTLD_DEFAULT, "hipLaunchKernel");
    by_name(dlopen(NULL, RTLD_LAZY), "hipLaunchKernel");
    puts("made global, RTLD_DEFAULT:");
    dlopen(arguments[1], RTLD_LAZY | RTLD_GLOBAL | RTLD_NOLOAD);
    by_name(RTLD_DEFAULT, "hipLaunchKernel");
    by_name(RTLD_DEFAULT, "hipGetDevice");
    by_name(dlopen(NULL, RTLD_LAZY), "hipLaunchKernel");
    printf("hip_4.2 %s\n", where(dlvsym(RTLD_DEFAULT, "hipLaunchKernel", "hip_4.2")));
    by_name(RTLD_DEFAULT, "malloc");
    by_name(RTLD_DEFAULT, "no_such_function");
    return 0;
}
