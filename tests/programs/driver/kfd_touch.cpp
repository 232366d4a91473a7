// run: unlinked | no-work
/* Requests to the KFD whose arguments lie in pages of the KFD's own file that nobody has touched. The simulated device reads
 * them while it carries out a request, and that makes a page fault that it has to answer at the same time; so it stood still
 * when it was about to read a program's memory and a thread of the program rang an idle queue. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <thread>

#include "check.h"
#include "kfd.h"

enum { THREADS = 8, ROUNDS = 25, PAGE = 4096 };

static void requests(int fd, int thread) {
  for (int round = 0; round < ROUNDS; round++) {
    off_t offset = (off_t)(1 + thread * ROUNDS + round) * PAGE;
    void *page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    REQUIRE(page != MAP_FAILED, "mmap: %s", strerror(errno));
    kfd_wait_events wait = {(uint64_t)page, 1, 0, 0, 0};
    /* A page of zeros names no event. */
    int result = ioctl(fd, KFD_WAIT_EVENTS, &wait);
    REQUIRE(result == -1 && errno == EINVAL, "WAIT_EVENTS: %d, %s", result, strerror(errno));
    REQUIRE(munmap(page, PAGE) == 0, "munmap: %s", strerror(errno));
  }
}

int main() {
  int fd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0, "/dev/kfd: %s", strerror(errno));
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; i++) threads.emplace_back(requests, fd, i);
  for (auto &thread : threads) thread.join();
  printf("ok\n");
}
