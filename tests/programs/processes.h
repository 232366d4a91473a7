/* Child processes of test programs, sequenced by pipes: a parent that has not used HIP yet starts itself
 * again in another role, reads what it prints line by line, and tells it to go on by closing its input. */
#ifndef GIVEWAY_TESTS_PROCESSES_H
#define GIVEWAY_TESTS_PROCESSES_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include "check.h"

struct Child {
  pid_t pid = -1;
  int input = -1;         /* we write, the child reads */
  FILE *output = nullptr; /* the child writes, we read */

  std::string line() {
    char text[512];
    if (fgets(text, sizeof text, output) == nullptr) return "(end of output)";
    text[strcspn(text, "\n")] = 0;
    return text;
  }
  void let_go() {
    close(input);
    input = -1;
  }
  /* Waits for its end: the exit status, or 1000 + signal. */
  int end() {
    int status = 0;
    if (input >= 0) let_go();
    while (waitpid(pid, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
    fclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
};

/* Starts this program again with these arguments; `setting` ("NAME=value") joins its environment if not null.
 */
static inline Child start_self(std::vector<std::string> arguments, const char *setting = nullptr) {
  int in[2], out[2];
  REQUIRE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe2: %s", strerror(errno));
  fflush(stdout);
  pid_t pid = fork();
  REQUIRE(pid >= 0, "fork: %s", strerror(errno));
  if (pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    if (setting != nullptr) putenv(strdup(setting));
    std::vector<char *> argv = {strdup("self")};
    for (auto &argument : arguments) argv.push_back(strdup(argument.c_str()));
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  Child child;
  child.pid = pid;
  child.input = in[1];
  child.output = fdopen(out[0], "r");
  return child;
}

/* Whether the parent (or the harness) has closed our input. */
static inline bool input_has_ended() {
  pollfd input = {0, POLLIN, 0};
  if (poll(&input, 1, 0) <= 0) return false;
  char byte;
  return read(0, &byte, 1) == 0;
}

/* In the child: until the parent (or the harness) closes our input. */
static inline void wait_for_end_of_input() {
  char byte;
  for (;;) {
    ssize_t n = read(0, &byte, 1);
    if (n == 0) return;
    REQUIRE(n > 0 || errno == EINTR, "read: %s", strerror(errno));
  }
}

#endif
