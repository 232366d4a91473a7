/* A child that calls HIP, one that only tidies up, one that executes another program; and the parent after them. */
#include "hip.h"
#include <sys/wait.h>

static void child(const char *what, void (*body)(char **), char **arguments) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        body(arguments);
        fflush(stdout);
        exit(7);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s: %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void launches(char **arguments) {
    (void)arguments;
    for (int i = 0; i < 5; i++) printf("child's launch %d\n", launch());
}

static void frees(char **arguments) {
    (void)arguments;
    printf("child's free %d\n", hipFree(NULL));
}

static void executes(char **arguments) {
    execv(arguments[1], arguments + 1);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    child("before HIP", launches, arguments);
    printf("launch %d\n", launch());
    child("launches", launches, arguments);
    child("frees", frees, arguments);
    child("executes", executes, arguments);
    printf("launch %d\n", launch());
    return 0;
}
