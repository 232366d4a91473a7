// run: plain
/* Copies that cannot be: wrong directions and addresses, too many bytes; nothing at all; onto itself. In front of and behind
 * good work. */
#include "check.h"

int main() {
  const size_t n = 1024, bytes = n * 8;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1), host(n);
  gw_u64 *data = device_words(want), *other = device_words(want);
  Gate gate;
  for (bool pending : {false, true}) {
    printf("%s\n", pending ? "behind work" : "on an empty stream");
    if (pending) gate.close(stream);
    /* Refused or empty, it waits for nothing that is pending; 5.2.3 takes any direction for one. */
    if (!pending) show("no direction", hipMemcpyAsync(data, other, bytes, (hipMemcpyKind)77, stream));
    show("beyond the end of the target", hipMemcpyAsync(data + 1, other, bytes, hipMemcpyDeviceToDevice, stream));
    show("beyond the end of the source", hipMemcpyAsync(data, other + 1, bytes, hipMemcpyDeviceToDevice, stream));
    show("to nowhere", hipMemcpyAsync(nullptr, other, bytes, hipMemcpyDeviceToDevice, stream));
    show("from nowhere", hipMemcpyAsync(data, nullptr, bytes, hipMemcpyDeviceToDevice, stream));
    show("nothing to nowhere", hipMemcpyAsync(nullptr, nullptr, 0, hipMemcpyDeviceToDevice, stream));
    show("nothing", hipMemcpyAsync(data, other, 0, hipMemcpyDefault, stream));
    show("a good one", hipMemcpyAsync(data, other, bytes, hipMemcpyDeviceToDevice, stream));
  }
  gate.open();
  show("the end", hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "two good copies of the same");
  show("onto itself", hipMemcpyAsync(data, data, bytes, hipMemcpyDeviceToDevice, stream));
  launch_mix(stream, data, data, n, 1);
  cpu_mix(want, want, 1);
  show("by hipMemcpy, from nowhere", hipMemcpy(data, nullptr, bytes, hipMemcpyHostToDevice));
  show("by hipMemcpyDtoH, to nowhere", hipMemcpyDtoH(nullptr, (hipDeviceptr_t)data, bytes));
  show("with a stream", hipMemcpyWithStream(host.data(), data, bytes, hipMemcpyDeviceToHost, stream));
  SAME(host.data(), want.data(), bytes, "it is there when the call returns");
  show("host to host", hipMemcpyAsync(host.data(), want.data() + 8, 64, hipMemcpyHostToHost, stream));
  SAME(host.data(), want.data() + 8, 64, "host to host is done at once");
  SAME_WORDS(data, want, "the end of it");
  printf("%016llx\n", digest_of(want));
  return passed();
}
