// run: plain
/* The program has a hipLaunchKernel of its own that finds the real one by the runtime's handle: it must not find itself. */
#include <dlfcn.h>

#include "work.h"

static int launches = 0;

extern "C" hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                      hipStream_t stream) {
  static void *runtime = dlopen(RUNTIME, RTLD_LAZY | RTLD_NOLOAD);
  static auto next = (decltype(&hipLaunchKernel))dlsym(runtime, "hipLaunchKernel");
  REQUIRE(next != &hipLaunchKernel, "it found itself");
  launches++;
  return next(function, grid, block, arguments, shared, stream);
}

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  sum.launch(stream, 40);
  CHECK(hipStreamSynchronize(stream));
  printf("%d launches %016llx\n", launches, sum.check("work"));
  return passed();
}
