/* Standard error is a pipe whose reader is gone: the library has something to say there. */
#include "hip.h"

int main(void) {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], 2) != 2) return 1;
    close(ends[0]);
    close(ends[1]);
    printf("launch %d\n", launch());
    return 0;
}
