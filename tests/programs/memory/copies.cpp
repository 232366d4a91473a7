// run: every-mode
/* hipMemcpy in all directions, sizes around the runtime's path changes (16 KiB, 64 KiB, 1 MiB, 4 MiB) and odd
 * offsets; whole regions are compared, so that a byte too many is seen as well. */
#include "check.h"

static const size_t MARGIN = 128;
static const size_t LARGEST = 64 * MIB;

static const size_t SIZES[] = {
    1,     2,       3,    4,       7,           8,       15,          63,           64,     65,
    255,   1000,    4095, 4096,    4097,        16383,   16384,       16385,        65535,  65536,
    65537, MIB - 1, MIB,  MIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 16 * MIB + 5, LARGEST};

static std::string label(const char *what, size_t n, size_t to, size_t from) {
  char text[128];
  snprintf(text, sizeof text, "%s of %zu bytes, offsets %zu <- %zu", what, n, to, from);
  return text;
}

struct Areas {
  unsigned char *one, *two;
  Bytes base, fresh, back, model;
};

static void round_trip(Areas &a, size_t n, size_t to, size_t from, Digest *digest) {
  const size_t total = n + MARGIN;
  fill_pattern(a.base.data(), total, n * 31 + to);
  fill_pattern(a.fresh.data(), total, n * 17 + from + 1);
  memcpy(a.model.data(), a.base.data(), total);

  CHECK(hipMemcpy(a.one, a.base.data(), total, hipMemcpyHostToDevice));
  CHECK(hipMemcpy(a.one + to, a.fresh.data() + from, n, hipMemcpyHostToDevice));
  memcpy(a.model.data() + to, a.fresh.data() + from, n);
  memset(a.back.data(), 0xEE, total);
  CHECK(hipMemcpy(a.back.data(), a.one, total, hipMemcpyDeviceToHost));
  SAME(a.back.data(), a.model.data(), total, label("host to device", n, to, from));
  digest[0].add(a.back.data(), total);

  memset(a.back.data(), 0xEE, total);
  CHECK(hipMemcpy(a.back.data() + from, a.one + to, n, hipMemcpyDeviceToHost));
  SAME(a.back.data() + from, a.model.data() + to, n, label("device to host", n, from, to));
  for (size_t i = 0; i < total; i++) {
    if (i == from) i += n;
    if (i < total) REQUIRE(a.back[i] == 0xEE, "device to host wrote byte %zu outside", i);
  }
  digest[1].add(a.back.data(), total);

  CHECK(hipMemcpy(a.two, a.fresh.data(), total, hipMemcpyHostToDevice));
  CHECK(hipMemcpy(a.two + from, a.one + to, n, hipMemcpyDeviceToDevice));
  memcpy(a.fresh.data() + from, a.model.data() + to, n);
  CHECK(hipMemcpy(a.back.data(), a.two, total, hipMemcpyDeviceToHost));
  SAME(a.back.data(), a.fresh.data(), total, label("device to device", n, from, to));
  digest[2].add(a.back.data(), total);
}

/* Ranges of one allocation that touch without overlapping (overlap is undefined in HIP). */
static void within_one_buffer(unsigned char *device) {
  const size_t n = 300001;
  Bytes model = pattern(3 * n, 5), back(3 * n);
  CHECK(hipMemcpy(device, model.data(), 3 * n, hipMemcpyHostToDevice));
  CHECK(hipMemcpy(device + n, device, n, hipMemcpyDeviceToDevice));
  memcpy(model.data() + n, model.data(), n);
  CHECK(hipMemcpy(device, device + 2 * n, n, hipMemcpyDeviceToDevice));
  memcpy(model.data(), model.data() + 2 * n, n);
  CHECK(hipMemcpy(back.data(), device, 3 * n, hipMemcpyDeviceToHost));
  SAME(back.data(), model.data(), 3 * n, "touching ranges of one buffer");
}

static void other_kinds(unsigned char *one, unsigned char *two) {
  const size_t sizes[] = {1, 16384, 65537, 4 * MIB + 1};
  for (size_t n : sizes) {
    Bytes source = pattern(n, n + 3), back(n), copy(n);
    CHECK(hipMemcpy(copy.data(), source.data(), n, hipMemcpyHostToHost));
    SAME(copy.data(), source.data(), n, "host to host");
    memset(copy.data(), 0, n);
    CHECK(hipMemcpy(copy.data(), source.data(), n, hipMemcpyDefault));
    SAME(copy.data(), source.data(), n, "default, both on the host");
    CHECK(hipMemcpy(one, source.data(), n, hipMemcpyDefault));
    CHECK(hipMemcpy(two, one, n, hipMemcpyDefault));
    CHECK(hipMemcpy(back.data(), two, n, hipMemcpyDefault));
    SAME(back.data(), source.data(), n, "default, through two device buffers");

    CHECK(hipMemset(one, 0, n));
    CHECK(hipMemset(two, 0, n));
    memset(back.data(), 0, n);
    CHECK(hipMemcpyHtoD(one, source.data(), n));
    CHECK(hipMemcpyDtoD(two, one, n));
    CHECK(hipMemcpyDtoH(back.data(), two, n));
    SAME(back.data(), source.data(), n, "HtoD, DtoD, DtoH");
  }
  CHECK(hipMemcpy(one, two, 0, hipMemcpyDeviceToDevice));
  EXPECT(hipMemcpy(one, nullptr, 16, hipMemcpyHostToDevice), hipErrorInvalidValue);
  Bytes small(16);
  EXPECT(hipMemcpy(one + LARGEST, small.data(), MARGIN + 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  EXPECT(hipMemcpy(small.data(), small.data(), 8, hipMemcpyDeviceToDevice), hipErrorInvalidValue);
  EXPECT(hipGetLastError(), hipErrorInvalidValue);
  EXPECT(hipGetLastError(), hipSuccess);
}

int main() {
  const size_t room = LARGEST + MARGIN;
  Areas areas = {device_alloc<unsigned char>(room),
                 device_alloc<unsigned char>(room),
                 Bytes(room),
                 Bytes(room),
                 Bytes(room),
                 Bytes(room)};
  const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 3}, {4, 13}, {65, 127}};
  for (size_t n : SIZES) {
    Digest digest[3];
    size_t variants = n > 4 * MIB + 1 ? 1 : n > 65537 ? 3 : 6;
    for (size_t i = 0; i < variants; i++) round_trip(areas, n, offsets[i][0], offsets[i][1], digest);
    if (n == 16 * MIB + 5) round_trip(areas, n, 5, 9, digest);
    printf("%zu bytes: to device %016llx, to host %016llx, on device %016llx\n", n, digest[0].value,
           digest[1].value, digest[2].value);
  }
  within_one_buffer(areas.one);
  other_kinds(areas.one, areas.two);
  CHECK(hipFree(areas.one));
  CHECK(hipFree(areas.two));
  return passed();
}
