// run: no-work
/* Memory that the process does not have cannot be registered, nor can a range that goes on behind what it has. */
#include "check.h"

#include <sys/mman.h>

int main() {
  const size_t page = 4096;
  char *pages = (char *)mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED, "no memory");
  REQUIRE(munmap(pages + 4 * page, 4 * page) == 0, "no hole");
  /* Which error it is has changed with the releases. */
  hipError_t said[] = {hipHostRegister(pages + 4 * page, page, 0), hipHostRegister(pages, 8 * page, 0),
                       hipHostRegister(pages, (size_t)64 << 30, 0)};
  for (hipError_t one : said) {
    REQUIRE(one != hipSuccess, "memory that is not there is registered");
    printf("%s\n", hipGetErrorName(one));
  }
  (void)hipGetLastError();
  CHECK(hipHostRegister(pages, 4 * page, 0));
  void *device = nullptr;
  CHECK(hipHostGetDevicePointer(&device, pages, 0));
  REQUIRE(device != nullptr, "it has no address");
  CHECK(hipHostUnregister(pages));
  show("no longer there", hipHostGetDevicePointer(&device, pages, 0));
  return passed();
}
