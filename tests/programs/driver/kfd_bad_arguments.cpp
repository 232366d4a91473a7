// run: every-mode
/* Requests about queues whose argument cannot be read, or cannot take the answer, on the device and elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "work.h"

int main() {
  hipStream_t stream = new_stream();
  Sum sum(7);
  CHECK(hipStreamSynchronize(nullptr));
  sum.launch(stream, 20);
  CHECK(hipStreamSynchronize(stream));
  int kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
  REQUIRE(kfd >= 0 && null >= 0, "open: %s", strerror(errno));
  char *pages = (char *)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0, "mmap");
  const struct {
    const char *name;
    unsigned long request;
  } requests[] = {
      {"CREATE_QUEUE", _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x02, 88)},
      {"DESTROY_QUEUE", _IOC(_IOC_READ | _IOC_WRITE, 'K', 0x03, 8)},
      {"UPDATE_QUEUE", _IOC(_IOC_WRITE, 'K', 0x07, 24)},
      {"SET_CU_MASK", _IOC(_IOC_WRITE, 'K', 0x1a, 16)},
  };
  const struct {
    const char *name;
    void *at;
  } places[] = {{"null", nullptr}, {"wrong", (void *)16}, {"half", pages + 4092}};
  for (auto &request : requests) {
    for (auto &place : places) {
      for (int file : {kfd, null, -1}) {
        errno = 0;
        int result = ioctl(file, request.request, place.at);
        printf("%s %s %s: %d %s\n", request.name, place.name, file == kfd ? "kfd" : file == null ? "null" : "none", result,
               strerror(errno));
      }
    }
  }
  printf("%016llx\n", sum.check("the work"));
  return passed();
}
