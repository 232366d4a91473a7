/* What a process consists of: threads, open files, signal handling, mapped fork pages. Uses HIP if told to. */
#include "hip.h"
#include <signal.h>

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) printf("launch %d\n", launch());
    struct sigaction action;
    int handlers = 0;
    for (int signal = 1; signal < 65; signal++) {
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
            handlers++;
    }
    printf("threads %d files %d handlers %d\n", entries("/proc/self/task") - 2, entries("/proc/self/fd") - 3, handlers);
    return 0;
}
