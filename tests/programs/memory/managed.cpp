// run: plain
/* Managed memory: kernels and host by turns, prefetch and advice in a stream's order, attributes. */
#include "check.h"

int main() {
  const size_t n = 4096, bytes = n * 8;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  gw_u64 *data = nullptr;
  CHECK(hipMallocManaged((void **)&data, bytes, hipMemAttachGlobal));
  Words want = pattern_words(n, 3);
  memcpy(data, want.data(), bytes);
  for (gw_u64 i = 0; i < 12; i++) {
    if (i % 4 == 0) launch_busy(stream, MS);
    show("prefetch", hipMemPrefetchAsync(data, bytes, i % 2 ? hipCpuDeviceId : 0, stream));
    launch_mix(stream, data, data, n, i);
    cpu_mix(want, want, i);
    if (i % 3 == 2) {
      CHECK(hipStreamSynchronize(stream));
      SAME(data, want.data(), bytes, "managed memory, seen by the host");
      data[5] = want[5] = i;
    }
  }
  show("attach", hipStreamAttachMemAsync(stream, data, 0, hipMemAttachSingle));
  show("advice", hipMemAdvise(data, bytes, hipMemAdviseSetReadMostly, 0));
  int read_mostly = 77;
  show("attribute", hipMemRangeGetAttribute(&read_mostly, sizeof read_mostly, hipMemRangeAttributeReadMostly, data, bytes));
  CHECK(hipStreamSynchronize(stream));
  SAME(data, want.data(), bytes, "managed memory at the end");
  printf("%016llx\n", digest_of(want));
  show("no memory", hipMemPrefetchAsync(nullptr, bytes, 0, stream));
  show("no bytes", hipMemPrefetchAsync(data, 0, 0, stream));
  show("no device", hipMemPrefetchAsync(data, bytes, 99, stream));
  show("wrong flags", hipMallocManaged((void **)&data, bytes, 99));
  show("nothing", hipMallocManaged((void **)&data, 0, hipMemAttachGlobal));
  return passed();
}
