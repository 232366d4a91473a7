// run: unlinked | loads module_kernels
/* Two copies of the runtime in one process, each with its own streams, memory and module: what belongs to one does not end
 * in the other. */
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "by_name.h"

static void *first, *second;
static void *in_first(const char *name) { return dlsym(first, name); }
static void *in_second(const char *name) { return dlsym(second, name); }

/* The runtime's file under another name, so that the dynamic linker takes it for another library. */
static std::string copy_of_the_runtime() {
  void *known = dlsym(first, "hipMalloc");
  Dl_info info;
  REQUIRE(dladdr(dlsym(first, "hipGetDevice"), &info) != 0 && known != nullptr, "no path");
  char name[] = "/tmp/giveway-second-XXXXXX";
  int to = mkstemp(name), from = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  REQUIRE(to >= 0 && from >= 0, "%s", info.dli_fname);
  std::vector<char> part(1 << 20);
  for (ssize_t n; (n = read(from, part.data(), part.size())) > 0;)
    REQUIRE(write(to, part.data(), (size_t)n) == n, "write");
  close(from);
  close(to);
  return name;
}

int main(int, char **argv) {
  first = dlopen(RUNTIME, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(first != nullptr, "%s", dlerror());
  std::string copy = copy_of_the_runtime();
  second = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(copy.c_str());
  REQUIRE(second != nullptr, "%s", dlerror());
  work_by_name(in_first, argv[1]);
  work_by_name(in_second, argv[1]);
  work_by_name(in_first, argv[1]);

  /* Functions that call others of their own library. */
  for (LookUp look_up : {in_first, in_second}) {
    void *device = nullptr;
    size_t pitch = 0;
    /* Newer headers make a template of it as well. */
    auto allocate = (hipError_t (*)(void **, size_t *, size_t, size_t))found_at(look_up, "hipMallocPitch");
    CHECK(allocate(&device, &pitch, 1000, 10));
    hipDeviceptr_t base = nullptr;
    size_t size = 0;
    CHECK(FOUND(look_up, hipMemGetAddressRange)(&base, &size, device));
    printf("pitch %zu, size %zu\n", pitch, size);
    LookUp other = look_up == in_first ? in_second : in_first;
    printf("the other: %s\n", hipGetErrorName(FOUND(other, hipMemGetAddressRange)(&base, &size, device)));
  }
  return passed();
}
