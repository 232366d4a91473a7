/* A library that looks a HIP function up itself: in every scope that it has, and in the one after it. */
#include "hip.h"

const char *found_by_default(void) {
    return where(dlsym(RTLD_DEFAULT, "hipLaunchKernel"));
}

const char *found_by_handle(void) {
    return where(dlsym(dlopen("libamdhip64.so.5", RTLD_LAZY | RTLD_NOLOAD), "hipLaunchKernel"));
}

const char *found_next(void) {
    return where(dlsym(RTLD_NEXT, "hipLaunchKernel"));
}
