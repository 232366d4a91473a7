// run: plain
/* The virtual memory interface, where the runtime has it: reserve, create, map, use, unmap while work is pending. */
#include "check.h"

int main() {
  const size_t n = 1000;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *sum = device_words(want);
  hipMemAllocationProp properties;
  memset((void *)&properties, 0, sizeof properties);
  properties.type = hipMemAllocationTypePinned;
  properties.location.type = hipMemLocationTypeDevice;
  size_t granularity = 0;
  show("granularity", hipMemGetAllocationGranularity(&granularity, &properties, hipMemAllocationGranularityMinimum));
  size_t size = granularity ? (n * 8 + granularity - 1) / granularity * granularity : 2 * MIB;
  void *address = nullptr;
  hipMemGenericAllocationHandle_t handle{};
  hipError_t reserved = hipMemAddressReserve(&address, size, 0, nullptr, 0);
  show("an address", reserved);
  hipError_t created = hipMemCreate(&handle, size, &properties, 0);
  show("memory", created);
  launch_mix(stream, sum, sum, n, 1);
  cpu_mix(want, want, 1);
  if (reserved == hipSuccess && created == hipSuccess) {
    show("mapped", hipMemMap(address, size, 0, handle, 0));
    hipMemAccessDesc access;
    memset((void *)&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = hipMemAccessFlagsProtReadWrite;
    hipError_t usable = hipMemSetAccess(address, size, &access, 1);
    show("made usable", usable);
    if (usable == hipSuccess) {
      CHECK(hipMemsetAsync(address, 7, n * 8, stream));
      launch_busy(stream, MS);
      launch_mix(stream, sum, (gw_u64 *)address, n, 2);
      Words sevens(n);
      memset(sevens.data(), 7, n * 8);
      cpu_mix(want, sevens, 2);
      CHECK(hipStreamSynchronize(stream));
    }
    show("unmapped", hipMemUnmap(address, size));
  }
  if (created == hipSuccess) show("memory given back", hipMemRelease(handle));
  if (reserved == hipSuccess) show("address given back", hipMemAddressFree(address, size));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(sum, want, "the work");
  printf("%016llx\n", digest_of(want));
  return passed();
}
