/* Calls by linked, versioned references, from a constructor on; the runtime calls itself; errno and results. */
#include "hip.h"

static int before_main;
__attribute__((constructor)) static void early(void) {
    before_main = __hipRegisterFatBinary("fat binary") != NULL;
}

int main(void) {
    size_t launches = 0, total = 0;
    void *memory = NULL, *stream = NULL;
    printf("registered %d\n", before_main);
    printf("stream %d %d\n", hipStreamCreate(&stream), stream != NULL);
    for (int i = 0; i < 3; i++) printf("launch %d\n", launch());
    printf("by pointer %d\n", hipLaunchByPtr("kernel"));
    hipMemGetInfo(&launches, &total);
    printf("module launches %zu\n", launches);
    char copy[4] = "";
    printf("malloc %d\n", hipMalloc(&memory, 4));
    printf("copy to %d\n", hipMemcpy(memory, "abc", 4, 1));
    printf("copy from %d\n", hipMemcpy(copy, memory, 4, 2));
    printf("%s free %d\n", copy, hipFree(memory));
    errno = 5;
    int result = hipStreamSynchronize(stream);
    printf("kept errno %d %d\n", result, errno);
    result = hipStreamQuery(stream);
    printf("runtime's errno %d %d\n", result, errno == ENOLINK);
    return 0;
}
