// run: loads module_kernels | slow-path
/* Launches at and beyond the largest sizes that a device has, by each function, while the stream has work: whatever the
 * runtime says of them, the call says it, and the stream goes on. Argument 1: the path of module_kernels. */
#include "work.h"

static hipStream_t stream;
static hipFunction_t function;
static gw_u64 duration = 1000;
static gw_u32 rounds = 1;
static void *arguments[] = {&duration, &rounds};

struct Size {
  const char *name;
  dim3 grid;
  unsigned shared;
};

static void by_each(const Size &size) {
  const dim3 &grid = size.grid;
  launch_busy(stream, 200 * 1000);
  printf("%s:", size.name);
  printf(" %d", (int)hipLaunchKernel((const void *)busy, grid, dim3(1), arguments, size.shared, stream));
  printf(" %d", (int)hipModuleLaunchKernel(function, grid.x, grid.y, grid.z, 1, 1, 1, size.shared, stream, arguments, nullptr));
  printf(" %d", (int)hipExtLaunchKernel((const void *)busy, grid, dim3(1), arguments, size.shared, stream, nullptr, nullptr, 0));
  (void)hipGetLastError();
  printf(", then %d\n", (int)hipStreamSynchronize(stream));
}

int main(int, char **argv) {
  stream = new_stream();
  hipModule_t module;
  CHECK(hipModuleLoad(&module, argv[1]));
  CHECK(hipModuleGetFunction(&function, module, "busy"));
  int local;
  CHECK(hipDeviceGetAttribute(&local, hipDeviceAttributeMaxSharedMemoryPerBlock, 0));
  const unsigned most = (unsigned)local;
  for (const Size &size : {Size{"one block", dim3(1), 0}, Size{"2^31 - 1 blocks", dim3(0x7fffffff), 0},
                           Size{"2^31 blocks", dim3(0x80000000u), 0}, Size{"2^32 - 1 blocks", dim3(0xffffffffu), 0},
                           Size{"65536 in y", dim3(1, 65536), 0}, Size{"65537 in y", dim3(1, 65537), 0},
                           Size{"65537 in z", dim3(1, 1, 65537), 0}, Size{"no block", dim3(1, 0, 1), 0},
                           Size{"all local memory", dim3(1), most}, Size{"more local memory", dim3(1), most + 1}})
    by_each(size);
  CHECK(hipModuleUnload(module));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
