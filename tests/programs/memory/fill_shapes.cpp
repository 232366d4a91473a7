// run: plain
/* Fills of all widths and shapes between kernels on the same memory: D8, D16, D32, 2D and 3D, on streams and without. */
#include "check.h"

static const size_t PITCH = 128, ROWS = 32, PLANES = 2, N = PITCH * ROWS * PLANES / 8;

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(N, 1);
  gw_u64 *data = device_words(want);
  unsigned char *bytes = (unsigned char *)want.data(), *on_device = (unsigned char *)data;
  for (gw_u64 i = 0; i < 24; i++) {
    if (i % 6 == 0) launch_busy(stream, MS / 2);
    hipStream_t at = i % 5 == 4 ? nullptr : stream;
    launch_mix(at, data, data, N, i);
    cpu_mix(want, want, i);
    int value = (int)(i * 11 + 1);
    switch (i % 8) {
      case 0:
        CHECK(hipMemsetAsync(on_device + 8, value, 800, at));
        memset(bytes + 8, value, 800);
        break;
      case 1:
        CHECK(hipMemsetD8Async((hipDeviceptr_t)(on_device + 16), (unsigned char)value, 24, at));
        memset(bytes + 16, value, 24);
        break;
      case 2:
        CHECK(hipMemsetD16Async((hipDeviceptr_t)(on_device + 32), (unsigned short)(value * 257), 64, at));
        for (int k = 0; k < 64; k++) ((unsigned short *)(bytes + 32))[k] = (unsigned short)(value * 257);
        break;
      case 3:
        CHECK(hipMemsetD32Async((hipDeviceptr_t)(on_device + 64), value * 65537, 32, at));
        for (int k = 0; k < 32; k++) ((int *)(bytes + 64))[k] = value * 65537;
        break;
      case 4:
        CHECK(hipMemset2DAsync(on_device, PITCH, value, 64, ROWS, at));
        for (size_t y = 0; y < ROWS; y++) memset(bytes + y * PITCH, value, 64);
        break;
      case 5: {
        hipPitchedPtr box = make_hipPitchedPtr(on_device, PITCH, PITCH, ROWS);
        CHECK(hipMemset3DAsync(box, value, make_hipExtent(32, ROWS, PLANES), at));
        for (size_t y = 0; y < ROWS * PLANES; y++) memset(bytes + y * PITCH, value, 32);
        break;
      }
      case 6:
        CHECK(hipMemset(on_device + 1024, value, 512));
        memset(bytes + 1024, value, 512);
        break;
      default:
        CHECK(hipMemset2D(on_device + 64, PITCH, value, 16, ROWS / 2));
        for (size_t y = 0; y < ROWS / 2; y++) memset(bytes + 64 + y * PITCH, value, 16);
    }
    launch_mix(at, data, data, N, i + 100);
    cpu_mix(want, want, i + 100);
  }
  CHECK(hipDeviceSynchronize());
  SAME_WORDS(data, want, "fills between kernels");
  printf("%016llx\n", digest_of(want));
  show("beyond the end", hipMemsetAsync(data, 0, N * 8 + 1, stream));
  show("nothing", hipMemsetAsync(data, 0, 0, stream));
  show("no memory", hipMemsetD32Async((hipDeviceptr_t) nullptr, 1, 4, stream));
  show("the host's memory", hipMemsetAsync(want.data(), 0, 16, stream));
  CHECK(hipDeviceSynchronize());
  return passed();
}
