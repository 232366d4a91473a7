// run: plain
/* Variables of the code object: hipMemcpyToSymbolAsync and FromSymbolAsync in a stream's order, with offsets, from memory
 * that is overwritten at once. */
#include "check.h"

__device__ gw_u64 table[512];

int main() {
  const size_t n = 512;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1), source = want;
  void *address = nullptr;
  CHECK(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
  gw_u64 *on_device = (gw_u64 *)address, *pinned = nullptr;
  CHECK(hipHostMalloc((void **)&pinned, n * 8, 0));
  launch_busy(stream, MS);
  CHECK(hipMemcpyToSymbolAsync(HIP_SYMBOL(table), source.data(), n * 8, 0, hipMemcpyHostToDevice, stream));
  memset(source.data(), 0xAA, n * 8);
  for (gw_u64 i = 0; i < 20; i++) {
    launch_mix(stream, on_device, on_device, n, i);
    cpu_mix(want, want, i);
    gw_u64 one = i * 77;
    CHECK(hipMemcpyToSymbolAsync(HIP_SYMBOL(table), &one, 8, i * 8, hipMemcpyHostToDevice, stream));
    want[i] = one;
    one = ~0ull;
  }
  CHECK(hipMemcpyFromSymbolAsync(pinned, HIP_SYMBOL(table), n * 8, 0, hipMemcpyDeviceToHost, stream));
  launch_mix(stream, on_device, on_device, n, 99);
  CHECK(hipStreamSynchronize(stream));
  SAME(pinned, want.data(), n * 8, "the variable as it was between two kernels");
  cpu_mix(want, want, 99);
  Words back(n);
  CHECK(hipMemcpyFromSymbol(back.data(), HIP_SYMBOL(table), n * 8 - 16, 16));
  SAME(back.data(), want.data() + 2, n * 8 - 16, "with an offset");
  printf("%016llx\n", digest_of(want));
  show("beyond its end", hipMemcpyToSymbolAsync(HIP_SYMBOL(table), back.data(), 16, n * 8 - 8, hipMemcpyHostToDevice,
                                                stream));
  show("no variable", hipMemcpyToSymbolAsync(&want, back.data(), 8, 0, hipMemcpyHostToDevice, stream));
  show("a wrong direction", hipMemcpyFromSymbolAsync(back.data(), HIP_SYMBOL(table), 8, 0, hipMemcpyHostToDevice, stream));
  size_t size = 0;
  show("the size of no variable", hipGetSymbolSize(&size, &want));
  CHECK(hipStreamSynchronize(stream));
  return passed();
}
