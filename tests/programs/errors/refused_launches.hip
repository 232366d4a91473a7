// run: build -Wno-deprecated-declarations
/* What HIP refuses of launches by their arguments, each given wrong in turn (docs/refusals.md). Left out: functions that are no
 * kernels from 7 on, and handles of modules' functions, events and streams that are none or gone, all of which HIP follows; and null
 * for the arguments of a kernel that has some, which it reads. */
#include "refused.h"
#include <hip/hip_ext.h>

static gw_u64 duration = 1000;
static gw_u32 rounds = 1;
static void *args[] = {&duration, &rounds};

static void sizes(const char *which, hipError_t (*launch)(dim3, dim3, unsigned)) {
  puts(which);
  ROW(launch(dim3(0, 1, 1), dim3(1), 0));
  ROW(launch(dim3(1, 0, 1), dim3(1), 0));
  ROW(launch(dim3(1, 1, 0), dim3(1), 0));
  ROW(launch(dim3(1), dim3(0, 1, 1), 0));
  ROW(launch(dim3(1), dim3(1, 0, 1), 0));
  ROW(launch(dim3(1), dim3(1, 1, 0), 0));
  ROW(launch(dim3(1), dim3(2048), 0));
  ROW(launch(dim3(1), dim3(1, 2048), 0));
  ROW(launch(dim3(1), dim3(1, 1, 2048), 0));
  ROW(launch(dim3(1), dim3(32, 32, 2), 0));
  ROW(launch(dim3(1), dim3(1), 1 << 20));
  ROW(launch(dim3(1), dim3(1), ~0u));
}

int main() {
  begin_rows();
  const void *kernel = (const void *)busy, *nowhere = nullptr;
  sizes("hipLaunchKernel", [](dim3 grid, dim3 block, unsigned shared) {
    return hipLaunchKernel((const void *)busy, grid, block, args, shared, s);
  });
  sizes("hipExtLaunchKernel", [](dim3 grid, dim3 block, unsigned shared) {
    return hipExtLaunchKernel((const void *)busy, grid, block, args, shared, s, nullptr, nullptr, 0);
  });
  sizes("hipLaunchCooperativeKernel", [](dim3 grid, dim3 block, unsigned shared) {
    return hipLaunchCooperativeKernel((const void *)busy, grid, block, args, shared, s);
  });
  ROW(hipLaunchKernel(nowhere, dim3(1), dim3(1), args, 0, s));
  ROW(hipLaunchKernel(nowhere, dim3(1), dim3(1), nullptr, 0, s));
  ROW(hipExtLaunchKernel(nowhere, dim3(1), dim3(1), args, 0, s, nullptr, nullptr, 0));
  ROW(hipLaunchCooperativeKernel(nowhere, dim3(1), dim3(1), args, 0, s));
  ROW(hipLaunchCooperativeKernel(kernel, dim3(1 << 20), dim3(1024), args, 0, s));
  ROW(hipModuleLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s, args, nullptr));
  ROW(hipExtModuleLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s, args, nullptr, nullptr, nullptr, 0));
  ROW(hipHccModuleLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s, args, nullptr, nullptr, nullptr));
#if HIP_VERSION_MAJOR < 7
  const void *other = &duration;
  ROW(hipLaunchKernel(other, dim3(1), dim3(1), args, 0, s));
  ROW(hipExtLaunchKernel(other, dim3(1), dim3(1), args, 0, s, nullptr, nullptr, 0));
  ROW(hipLaunchCooperativeKernel(other, dim3(1), dim3(1), args, 0, s));
#endif
#if HIP_VERSION_MAJOR >= 7
  hipLaunchConfig_t config = {};
  config.gridDim = dim3(0, 1, 1), config.blockDim = dim3(1), config.stream = s;
  ROW(hipLaunchKernelExC(nullptr, kernel, args));
  ROW(hipLaunchKernelExC(&config, kernel, args));
  config.gridDim = dim3(1), config.blockDim = dim3(2048);
  ROW(hipLaunchKernelExC(&config, kernel, args));
  config.blockDim = dim3(1);
  ROW(hipLaunchKernelExC(&config, nullptr, args));
#endif
  return end_rows();
}
