// run: plain
/* Pageable memory around the sizes where the runtime changes its way (64 KiB, 1 MiB, 4 MiB): the source is overwritten when
 * the call returns, the target read when it returns. Behind a kernel, so that a late copy would be seen. */
#include "check.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  const size_t most = 9 * MIB;
  unsigned char *device = device_alloc<unsigned char>(most);
  Bytes source(most), target(most);
  for (size_t bytes : {size_t(1), size_t(8), size_t(4095), size_t(4096), 16 * KIB + 1, 64 * KIB - 1, 64 * KIB,
                       64 * KIB + 8, MIB - 1, MIB, MIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, most}) {
    for (size_t offset : {size_t(0), size_t(3)}) {
      if (offset + bytes > most) continue;
      Bytes want = pattern(bytes, bytes + offset);
      CHECK(hipMemsetAsync(device, 0x55, most, stream));
      launch_busy(stream, MS / 2);
      memcpy(source.data(), want.data(), bytes);
      CHECK(hipMemcpyAsync(device + offset, source.data(), bytes, hipMemcpyHostToDevice, stream));
      memset(source.data(), 0xEE, bytes);
      CHECK(hipMemcpyAsync(target.data(), device + offset, bytes, hipMemcpyDeviceToHost, stream));
      SAME(target.data(), want.data(), bytes, std::to_string(bytes) + " bytes there and back");
      unsigned char edge[2] = {0, 0};
      if (offset) CHECK(hipMemcpy(&edge[0], device + offset - 1, 1, hipMemcpyDeviceToHost));
      if (offset + bytes < most) CHECK(hipMemcpy(&edge[1], device + offset + bytes, 1, hipMemcpyDeviceToHost));
      Digest digest;
      digest.add(target.data(), bytes);
      printf("%zu at %zu: %016llx, beside it %x %x\n", bytes, offset, digest.value, edge[0], edge[1]);
    }
  }
  return passed();
}
