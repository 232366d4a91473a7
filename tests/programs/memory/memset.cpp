// run: every-mode
/* hipMemset and its D8, D16, D32, 2D and Async forms with odd sizes and offsets; the bytes around stay. */
#include "check.h"

/* HIP 5.2.3 fills up to the next multiple of 8 first, and counts wrongly (with an underflow) if the whole
 * fill ends before it; such fills are left out. */
static bool runtime_can(size_t offset, size_t bytes) {
  return offset % 8 == 0 || bytes >= 8 - offset % 8;
}

static const size_t ROOM = 64 * MIB + 256;

struct Area {
  unsigned char *device;
  Bytes model, back;

  void refill(size_t n, gw_u64 seed) {
    fill_pattern(model.data(), n, seed);
    CHECK(hipMemcpy(device, model.data(), n, hipMemcpyHostToDevice));
  }
  void compare(size_t n, const std::string &what, Digest &digest) {
    CHECK(hipMemcpy(back.data(), device, n, hipMemcpyDeviceToHost));
    SAME(back.data(), model.data(), n, what);
    digest.add(back.data(), n);
  }
};

/* The model's version of a fill with elements of `width` bytes. */
static void cpu_fill(unsigned char *to, gw_u64 value, size_t width, size_t count) {
  for (size_t i = 0; i < count; i++) memcpy(to + i * width, &value, width);
}

static void fills(Area &area, hipStream_t stream, size_t width, size_t count, size_t offset, Digest &digest) {
  if (!runtime_can(offset, width * count)) return;
  const size_t total = offset + width * count + 128;
  const gw_u64 value = 0x8C3DA5E1u >> (32 - 8 * width);
  const std::string label = "fill of " + std::to_string(count) + " elements of " + std::to_string(width) +
                            " bytes at " + std::to_string(offset);
  unsigned char *at = area.device + offset;
  area.refill(total, count + offset);
  if (width == 1) CHECK(hipMemsetD8(at, (unsigned char)value, count));
  if (width == 2) CHECK(hipMemsetD16(at, (unsigned short)value, count));
  if (width == 4) CHECK(hipMemsetD32(at, (int)value, count));
  CHECK(hipDeviceSynchronize());
  cpu_fill(&area.model[offset], value, width, count);
  area.compare(total, label, digest);

  area.refill(total, count + offset + 1);
  if (width == 1) CHECK(hipMemsetD8Async(at, (unsigned char)~value, count, stream));
  if (width == 2) CHECK(hipMemsetD16Async(at, (unsigned short)~value, count, stream));
  if (width == 4) CHECK(hipMemsetD32Async(at, (int)~value, count, stream));
  CHECK(hipStreamSynchronize(stream));
  cpu_fill(&area.model[offset], ~value, width, count);
  area.compare(total, "asynchronous " + label, digest);
}

static void plain(Area &area, hipStream_t stream, size_t n, size_t offset, Digest &digest) {
  if (!runtime_can(offset, n)) return;
  const size_t total = offset + n + 128;
  area.refill(total, n);
  CHECK(hipMemset(area.device + offset, 0x15A, n)); /* only the low byte counts */
  CHECK(hipDeviceSynchronize());
  memset(&area.model[offset], 0x5A, n);
  area.compare(total, "hipMemset of " + std::to_string(n) + " at " + std::to_string(offset), digest);
  CHECK(hipMemsetAsync(area.device + offset, -1, n, stream));
  CHECK(hipStreamSynchronize(stream));
  memset(&area.model[offset], 0xFF, n);
  area.compare(total, "hipMemsetAsync of " + std::to_string(n) + " at " + std::to_string(offset), digest);
}

static void two_dimensional(Area &area, hipStream_t stream, size_t pitch, size_t width, size_t height,
                            size_t offset, Digest &digest) {
  const size_t total = offset + pitch * height + 128;
  area.refill(total, pitch + width);
  CHECK(hipMemset2D(area.device + offset, pitch, 0x77, width, height));
  CHECK(hipDeviceSynchronize());
  for (size_t y = 0; y < height; y++) memset(&area.model[offset + y * pitch], 0x77, width);
  const std::string label =
      std::to_string(width) + " of " + std::to_string(pitch) + " x " + std::to_string(height);
  area.compare(total, "hipMemset2D " + label, digest);
  CHECK(hipMemset2DAsync(area.device + offset, pitch, 0xC1, width, height, stream));
  CHECK(hipStreamSynchronize(stream));
  for (size_t y = 0; y < height; y++) memset(&area.model[offset + y * pitch], 0xC1, width);
  area.compare(total, "hipMemset2DAsync " + label, digest);
}

/* Fills between kernels of one stream keep their place. */
static void in_order(hipStream_t stream) {
  const size_t n = 4096;
  Words want = pattern_words(n, 1), src = pattern_words(n, 2);
  gw_u64 *a = device_words(want), *b = device_words(src);
  for (int i = 0; i < 20; i++) {
    launch_mix(stream, a, b, n, (gw_u64)i);
    CHECK(hipMemsetAsync(b, i, n * sizeof(gw_u64) / 2, stream));
    launch_mix(stream, b, a, n, (gw_u64)i + 100);
    cpu_mix(want, src, (gw_u64)i);
    memset(src.data(), i, n * sizeof(gw_u64) / 2);
    cpu_mix(src, want, (gw_u64)i + 100);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "fills between kernels");
  SAME_WORDS(b, src, "fills between kernels");
  printf("between kernels %016llx\n", digest_of(want));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
}

int main() {
  Area area = {device_alloc<unsigned char>(ROOM), Bytes(ROOM), Bytes(ROOM)};
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  const size_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 255, 256, 257, 4095, 4097, 65535, 65537, MIB + 1};
  for (size_t n : sizes) {
    Digest digest;
    for (size_t offset : {0, 1, 3, 8, 13}) plain(area, stream, n, offset, digest);
    for (size_t offset : {0, 5}) fills(area, stream, 1, n, offset, digest);
    for (size_t offset : {0, 2, 6, 8}) fills(area, stream, 2, n, offset, digest);
    for (size_t offset : {0, 4, 12}) fills(area, stream, 4, n, offset, digest);
    printf("%zu elements %016llx\n", n, digest.value);
  }
  Digest large;
  plain(area, stream, 16 * MIB + 3, 1, large);
  plain(area, stream, 64 * MIB, 0, large);
  fills(area, stream, 4, 4 * MIB, 4, large);
  printf("large %016llx\n", large.value);
  Digest planes;
  two_dimensional(area, stream, 64, 64, 16, 0, planes);
  two_dimensional(area, stream, 100, 37, 11, 0, planes);
  two_dimensional(area, stream, 256, 255, 300, 0, planes);
  two_dimensional(area, stream, 4099, 1000, 77, 0, planes);
  printf("2D %016llx\n", planes.value);
  in_order(stream);
  CHECK(hipMemset(area.device, 1, 0));
  Bytes host(16);
  EXPECT(hipMemset(host.data(), 1, 16), hipErrorInvalidValue);
  EXPECT(hipMemset(nullptr, 1, 16), hipErrorInvalidValue);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(area.device));
  return passed();
}
