/* Without any runtime: the names that the preload brings with it, called through weak references. */
#include "hip.h"
#pragma weak hipLaunchKernel
#pragma weak __hipRegisterFatBinary

int main(void) {
    if (!hipLaunchKernel) return puts("no hipLaunchKernel"), 0;
    errno = 5;
    printf("launch %d errno %d\n", launch(), errno);
    printf("launch %d\n", launch());
    printf("register %d\n", __hipRegisterFatBinary("") != NULL);
    return 0;
}
