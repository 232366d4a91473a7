/* A library that uses HIP before the preloaded one is initialised, and after the program has ended. */
#include "hip.h"

static void at_exit(void) {
    printf("in an exit handler %d\n", launch());
}

__attribute__((constructor)) static void early(void) {
    atexit(at_exit);
    printf("in a constructor %d\n", launch());
}

__attribute__((destructor)) static void late(void) {
    printf("in a destructor %d\n", launch());
    fflush(stdout);
}

void early_function(void) {}
