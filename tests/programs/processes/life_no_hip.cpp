// run: unlinked | no-work
/* A program that has nothing to do with HIP: one thread, three descriptors, the mask and handlers of a process
 * that was just started. */
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>

#include <stdio.h>
#include <stdlib.h>

static int entries(const char *folder) {
  int count = 0;
  DIR *open = opendir(folder);
  if (open == nullptr) exit(1);
  while (dirent *entry = readdir(open)) count += entry->d_name[0] != '.';
  closedir(open);
  return count;
}

int main() {
  int handlers = 0, blocked = 0;
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  for (int i = 1; i < 32; i++) {
    struct sigaction action;
    if (sigaction(i, nullptr, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) handlers++;
    blocked += sigismember(&mask, i) == 1;
  }
  printf("threads %d, descriptors %d, handlers %d, blocked %d\n", entries("/proc/self/task"), entries("/proc/self/fd"),
         handlers, blocked);
  puts("ok");
}
