/* The program's own `ioctl`, which notes the queues that its runtime makes and destroys. ROCr calls it: the executable's
 * definition comes before libc's, and before that of a preloaded library. Include it in one file of a program. */
#ifndef GIVEWAY_TESTS_KFD_SEEN_H
#define GIVEWAY_TESTS_KFD_SEEN_H

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "kfd.h"

/* A queue, and through which descriptor it was made. */
struct SeenQueue {
  int fd;
  kfd_create_queue made;

  bool compute() const { return made.queue_type == KFD_QUEUE_COMPUTE || made.queue_type == KFD_QUEUE_COMPUTE_AQL; }
  kfd_update_queue update(uint32_t percentage) const {
    return {made.ring_base_address, made.queue_id, made.ring_size, percentage, made.queue_priority};
  }
};

static std::mutex seen_lock;
static std::vector<SeenQueue> seen;
/* Called once, with the descriptor, before the first queue is made. */
static void (*before_first_queue)(int fd) = nullptr;

/* The `ioctl` behind this one. */
static inline int real_ioctl(int fd, unsigned long request, void *argument) {
  static int (*const real)(int, unsigned long, void *) =
      (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
  return real(fd, request, argument);
}

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  static std::atomic<bool> first{true};
  if (kfd_creates_queue(request) && first.exchange(false) && before_first_queue) before_first_queue(fd);
  int result = real_ioctl(fd, request, argument);
  if (result != 0) return result;
  if (kfd_creates_queue(request)) {
    std::lock_guard<std::mutex> guard(seen_lock);
    seen.push_back({fd, *(const kfd_create_queue *)argument});
  } else if (kfd_destroys_queue(request)) {
    uint32_t id = *(const uint32_t *)argument;
    std::lock_guard<std::mutex> guard(seen_lock);
    for (size_t i = 0; i < seen.size(); i++) {
      if (seen[i].made.queue_id == id) seen.erase(seen.begin() + (long)i--);
    }
  }
  return result;
}

/* Those that are there, of all types. */
static inline std::vector<SeenQueue> queues_seen() {
  std::lock_guard<std::mutex> guard(seen_lock);
  return seen;
}

/* All compute queues get this percentage; how many there are, and the first error in `error`. */
static inline size_t update_compute_queues(uint32_t percentage, int &error) {
  size_t count = 0;
  error = 0;
  for (const SeenQueue &queue : queues_seen()) {
    if (!queue.compute()) continue;
    count++;
    kfd_update_queue update = queue.update(percentage);
    if (ioctl(queue.fd, KFD_UPDATE_QUEUE, &update) != 0 && error == 0) error = errno;
  }
  return count;
}

#endif
