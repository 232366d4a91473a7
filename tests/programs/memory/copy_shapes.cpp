// run: plain
/* Copies of planes and boxes: hipMemcpy2DAsync, hipMemcpyParam2DAsync, hipMemcpy3DAsync, hipDrvMemcpy3DAsync, between two
 * kernels on the same memory; with nothing to copy and with wrong shapes. */
#include "check.h"

static const size_t PITCH = 256, WIDTH = 200, HEIGHT = 20, DEPTH = 4, N = PITCH * HEIGHT * DEPTH / 8;

/* The same by hand. */
static void box(Words &dst, const Words &src, size_t width, size_t height, size_t depth) {
  for (size_t z = 0; z < depth; z++) {
    for (size_t y = 0; y < height; y++) {
      size_t at = (z * HEIGHT + y) * PITCH;
      memcpy((char *)dst.data() + at, (const char *)src.data() + at, width);
    }
  }
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words a = pattern_words(N, 1), b = pattern_words(N, 2);
  gw_u64 *on_a = device_words(a), *on_b = device_words(b);
  gw_u64 *pinned = nullptr;
  CHECK(hipHostMalloc((void **)&pinned, N * 8, 0));
  for (gw_u64 i = 0; i < 12; i++) {
    if (i % 4 == 0) launch_busy(stream, MS);
    launch_mix(stream, on_a, on_b, N, i);
    cpu_mix(a, b, i);
    switch (i % 4) {
      case 0:
        CHECK(hipMemcpy2DAsync(on_b, PITCH, on_a, PITCH, WIDTH, HEIGHT, hipMemcpyDeviceToDevice, stream));
        box(b, a, WIDTH, HEIGHT, 1);
        break;
      case 1: {
        hip_Memcpy2D shape;
        memset(&shape, 0, sizeof shape);
        shape.srcMemoryType = shape.dstMemoryType = hipMemoryTypeDevice;
        shape.srcDevice = (hipDeviceptr_t)on_a;
        shape.dstDevice = (hipDeviceptr_t)on_b;
        shape.srcPitch = shape.dstPitch = PITCH;
        shape.WidthInBytes = WIDTH - 3;
        shape.Height = HEIGHT;
        CHECK(hipMemcpyParam2DAsync(&shape, stream));
        memset(&shape, 0xFF, sizeof shape); /* the call has its own copy */
        box(b, a, WIDTH - 3, HEIGHT, 1);
        break;
      }
      case 2: {
        hipMemcpy3DParms shape;
        memset((void *)&shape, 0, sizeof shape);
        shape.srcPtr = make_hipPitchedPtr(on_a, PITCH, PITCH, HEIGHT);
        shape.dstPtr = make_hipPitchedPtr(on_b, PITCH, PITCH, HEIGHT);
        shape.extent = make_hipExtent(WIDTH, HEIGHT - 1, DEPTH);
        shape.kind = hipMemcpyDeviceToDevice;
        CHECK(hipMemcpy3DAsync(&shape, stream));
        memset((void *)&shape, 0xFF, sizeof shape);
        box(b, a, WIDTH, HEIGHT - 1, DEPTH);
        break;
      }
      default: {
        HIP_MEMCPY3D shape;
        memset(&shape, 0, sizeof shape);
        shape.srcMemoryType = shape.dstMemoryType = hipMemoryTypeDevice;
        shape.srcDevice = (hipDeviceptr_t)on_a;
        shape.dstDevice = (hipDeviceptr_t)on_b;
        shape.srcPitch = shape.dstPitch = PITCH;
        shape.srcHeight = shape.dstHeight = HEIGHT;
        shape.WidthInBytes = WIDTH;
        shape.Height = HEIGHT - 2;
        shape.Depth = DEPTH - 1;
        CHECK(hipDrvMemcpy3DAsync(&shape, stream));
        memset(&shape, 0xFF, sizeof shape);
        box(b, a, WIDTH, HEIGHT - 2, DEPTH - 1);
      }
    }
    launch_mix(stream, on_b, on_a, N, i + 50);
    cpu_mix(b, a, i + 50);
  }
  CHECK(hipMemcpy2DAsync(pinned, PITCH, on_b, PITCH, PITCH, HEIGHT * DEPTH, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  SAME(pinned, b.data(), N * 8, "planes and boxes, on the host");
  SAME_WORDS(on_a, a, "a");
  SAME_WORDS(on_b, b, "b");
  printf("%016llx %016llx\n", digest_of(a), digest_of(b));

  show("no width", hipMemcpy2DAsync(on_b, PITCH, on_a, PITCH, 0, HEIGHT, hipMemcpyDeviceToDevice, stream));
  show("no height", hipMemcpy2DAsync(on_b, PITCH, on_a, PITCH, WIDTH, 0, hipMemcpyDeviceToDevice, stream));
  show("a pitch below the width",
       hipMemcpy2DAsync(on_b, WIDTH - 1, on_a, PITCH, WIDTH, HEIGHT, hipMemcpyDeviceToDevice, stream));
  show("beyond the end",
       hipMemcpy2DAsync(on_b, PITCH, on_a, PITCH, WIDTH, HEIGHT * DEPTH + 1, hipMemcpyDeviceToDevice, stream));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(on_b, b, "what was refused or empty");
  return passed();
}
