// run: every-mode
/* hipMemcpy2D and hipMemcpy2DAsync with different pitches; the bytes between the rows stay as they were. */
#include "check.h"

/* 7.2.4 pins pageable rows, and unpins them on a thread of its own when the copy is done: perhaps behind the free() of a
 * program that has waited for it. Where two share a page, or one is pinned again meanwhile, ROCr now and then ends the
 * process ("Failed to deregister host pointer", 1 of 12 runs, natively). So all have pages of their own, and keep them. */
static unsigned char *in_own_pages(const Bytes &bytes) {
  const size_t page = 4096;
  void *rows = aligned_alloc(page, (bytes.size() + 2 * page - 1) / page * page);
  REQUIRE(rows != nullptr, "no memory");
  memcpy(rows, bytes.data(), bytes.size());
  return (unsigned char *)rows;
}

struct Shape {
  size_t width, height, from_pitch, to_pitch;
};

static void copy_rows(Bytes &to, size_t to_pitch, const Bytes &from, size_t from_pitch, size_t width,
                      size_t height) {
  for (size_t y = 0; y < height; y++) memcpy(&to[y * to_pitch], &from[y * from_pitch], width);
}

static gw_u64 one_shape(const Shape &s, bool async, hipStream_t stream) {
  const size_t from_bytes = s.from_pitch * s.height, to_bytes = s.to_pitch * s.height;
  unsigned char *a = device_alloc<unsigned char>(to_bytes), *b = device_alloc<unsigned char>(to_bytes);
  Bytes source = pattern(from_bytes, s.width), model_a = pattern(to_bytes, 2), model_b = pattern(to_bytes, 3);
  Bytes model_host = pattern(from_bytes, 4), back(to_bytes);
  unsigned char *rows = in_own_pages(source), *host = in_own_pages(model_host);
  CHECK(hipMemcpy(a, model_a.data(), to_bytes, hipMemcpyHostToDevice));
  CHECK(hipMemcpy(b, model_b.data(), to_bytes, hipMemcpyHostToDevice));
  auto copy = [&](void *to, size_t to_pitch, const void *from, size_t from_pitch, hipMemcpyKind kind) {
    if (async) {
      CHECK(hipMemcpy2DAsync(to, to_pitch, from, from_pitch, s.width, s.height, kind, stream));
    } else {
      CHECK(hipMemcpy2D(to, to_pitch, from, from_pitch, s.width, s.height, kind));
    }
  };
  copy(a, s.to_pitch, rows, s.from_pitch, hipMemcpyHostToDevice);
  copy(b, s.to_pitch, a, s.to_pitch, hipMemcpyDeviceToDevice);
  copy(host, s.from_pitch, b, s.to_pitch, hipMemcpyDeviceToHost);
  if (async) CHECK(hipStreamSynchronize(stream));
  copy_rows(model_a, s.to_pitch, source, s.from_pitch, s.width, s.height);
  copy_rows(model_b, s.to_pitch, model_a, s.to_pitch, s.width, s.height);
  copy_rows(model_host, s.from_pitch, model_b, s.to_pitch, s.width, s.height);
  std::string label = std::to_string(s.width) + " x " + std::to_string(s.height);
  CHECK(hipMemcpy(back.data(), a, to_bytes, hipMemcpyDeviceToHost));
  SAME(back.data(), model_a.data(), to_bytes, "2D host to device " + label);
  CHECK(hipMemcpy(back.data(), b, to_bytes, hipMemcpyDeviceToHost));
  SAME(back.data(), model_b.data(), to_bytes, "2D device to device " + label);
  SAME(host, model_host.data(), from_bytes, "2D device to host " + label);
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  Digest digest;
  digest.add(model_host);
  return digest.value;
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  const Shape shapes[] = {{1, 1, 1, 1},           {7, 5, 9, 13},          {64, 64, 64, 64},
                          {100, 33, 128, 256},    {256, 256, 256, 512},   {1000, 100, 1003, 1024},
                          {4096, 64, 4096, 4352}, {4000, 300, 4096, 4099}};
  for (const Shape &s : shapes) {
    printf("%zu x %zu, pitches %zu and %zu: %016llx %016llx\n", s.width, s.height, s.from_pitch, s.to_pitch,
           one_shape(s, false, stream), one_shape(s, true, stream));
  }
  EXPECT(hipMemcpy2D(nullptr, 8, nullptr, 8, 8, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
  CHECK(hipStreamDestroy(stream));
  return passed();
}
