// run: plain
/* The program has a hipLaunchKernel and a hipMemcpyAsync of its own, which count and pass on to the next ones. */
#include <dlfcn.h>

#include <atomic>

#include "work.h"

static std::atomic<int> launches(0), copies(0);

extern "C" hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                      hipStream_t stream) {
  static auto next = (decltype(&hipLaunchKernel))dlsym(RTLD_NEXT, "hipLaunchKernel");
  launches++;
  return next(function, grid, block, arguments, shared, stream);
}

extern "C" hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  static auto next = (decltype(&hipMemcpyAsync))dlsym(RTLD_NEXT, "hipMemcpyAsync");
  copies++;
  return next(to, from, bytes, kind, stream);
}

int main() {
  hipStream_t stream = new_stream();
  Sum sum(1);
  CHECK(hipDeviceSynchronize());
  gw_u64 *pinned = nullptr;
  CHECK(hipHostMalloc((void **)&pinned, 8000, 0));
  for (int i = 0; i < 10; i++) {
    sum.launch(stream, 3);
    CHECK(hipMemcpyAsync(pinned, sum.device, 8000, hipMemcpyDeviceToHost, stream));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME(pinned, sum.want.data(), 8000, "copied");
  printf("%d launches, %d copies\n", launches.load(), copies.load());
  return passed();
}
