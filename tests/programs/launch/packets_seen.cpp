// run: loads packets_tool | every-mode
/* A tool of ROCr sees the packets of the program's queues (HSA_TOOLS_LIB): as many launch a kernel as the program launches, natively and
 * with the library, and none is lost, repeated or added. */
#include <dlfcn.h>

#include "work.h"

int main(int, char **argv) {
  if (getenv("HSA_TOOLS_LIB") == nullptr) {
    setenv("HSA_TOOLS_LIB", argv[1], 1);
    execv("/proc/self/exe", argv);
    FAIL("execv");
  }
  hipStream_t streams[] = {new_stream(), new_stream()};
  /* ROCr has loaded it, under this path. */
  void *tool = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(tool != nullptr, "ROCr has not loaded %s", argv[1]);
  auto seen = (unsigned long (*)())dlsym(tool, "packets_seen");
  Sum a(1), b(2);
  CHECK(hipDeviceSynchronize());
  const unsigned long before = seen();
  for (int i = 0; i < 40; i++) {
    a.launch(streams[0], 2);
    b.launch(streams[1], 1);
  }
  CHECK(hipDeviceSynchronize());
  printf("%lu packets launch a kernel\n", seen() - before);
  REQUIRE(seen() - before == 120, "%lu packets instead of 120", seen() - before);
  printf("%016llx %016llx\n", a.check("one stream"), b.check("the other"));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
  a.release();
  b.release();
  return passed();
}
