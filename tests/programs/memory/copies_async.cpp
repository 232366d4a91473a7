// run: every-mode
/* hipMemcpyAsync on streams, with pinned, registered and pageable host memory, and kernels in between that
 * prove the order. */
#include "check.h"

static const size_t SIZES[] = {8,   4096,    16384,   16392,       65536,   65544,
                               MIB, MIB + 8, 4 * MIB, 4 * MIB + 8, 16 * MIB};

/* host -> device, mix, device -> device, mix, device -> host, all in one stream behind each other. */
static gw_u64 pipeline(hipStream_t stream, gw_u64 *host_in, gw_u64 *host_out, size_t n, gw_u64 seed) {
  const size_t bytes = n * sizeof(gw_u64);
  gw_u64 *a = device_alloc<gw_u64>(n), *b = device_alloc<gw_u64>(n);
  Words want = pattern_words(n, seed), src;
  memcpy(host_in, want.data(), bytes);
  memset(host_out, 0xEE, bytes);
  CHECK(hipMemcpyAsync(a, host_in, bytes, hipMemcpyHostToDevice, stream));
  launch_mix(stream, a, a, n, seed + 1);
  CHECK(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, stream));
  launch_mix(stream, b, a, n, seed + 2);
  CHECK(hipMemcpyAsync(host_out, b, bytes, hipMemcpyDeviceToHost, stream));
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(want, want, seed + 1);
  src = want;
  cpu_mix(want, src, seed + 2);
  SAME(host_out, want.data(), bytes, "pipeline of " + std::to_string(bytes) + " bytes");
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return digest_of(want);
}

static gw_u64 *pinned_words(size_t n) {
  void *p = nullptr;
  CHECK(hipHostMalloc(&p, n * sizeof(gw_u64), hipHostMallocDefault));
  return (gw_u64 *)p;
}

static void single_stream(hipStream_t stream) {
  const size_t most = SIZES[sizeof SIZES / sizeof SIZES[0] - 1] / sizeof(gw_u64);
  gw_u64 *in = pinned_words(most), *out = pinned_words(most);
  Words pageable_in(most), pageable_out(most);
  Bytes memory(2 * most * sizeof(gw_u64) + 2 * 4096);
  unsigned char *aligned = (unsigned char *)(((uintptr_t)memory.data() + 4095) & ~(uintptr_t)4095);
  CHECK(hipHostRegister(aligned, 2 * most * sizeof(gw_u64), hipHostRegisterDefault));
  gw_u64 *registered_in = (gw_u64 *)aligned, *registered_out = registered_in + most;
  for (size_t bytes : SIZES) {
    const size_t n = bytes / sizeof(gw_u64);
    gw_u64 pinned = pipeline(stream, in, out, n, bytes);
    gw_u64 registered = pipeline(stream, registered_in, registered_out, n, bytes + 7);
    gw_u64 pageable = pipeline(stream, pageable_in.data(), pageable_out.data(), n, bytes + 11);
    printf("%zu bytes: pinned %016llx, registered %016llx, pageable %016llx\n", bytes, pinned, registered,
           pageable);
  }
  /* From the middle of a registered range, where no allocation begins. */
  printf("inside a registered range %016llx\n",
         pipeline(stream, registered_in + 1001, registered_out + 77, 5000, 3));
  CHECK(hipHostUnregister(aligned));
  CHECK(hipHostFree(in));
  CHECK(hipHostFree(out));
}

/* Copies of four streams at once, with pinned memory; each stream's bytes are its own. */
static void side_by_side() {
  const int streams = 4, rounds = 8;
  const size_t n = 96 * KIB;
  hipStream_t stream[streams];
  gw_u64 *host[streams], *device[streams], *result[streams];
  for (int s = 0; s < streams; s++) {
    CHECK(hipStreamCreateWithFlags(&stream[s], s % 2 ? hipStreamNonBlocking : hipStreamDefault));
    host[s] = pinned_words(n);
    result[s] = pinned_words(n);
    device[s] = device_alloc<gw_u64>(n);
    fill_pattern(host[s], n * sizeof(gw_u64), 100 + (gw_u64)s);
  }
  for (int s = 0; s < streams; s++) {
    CHECK(hipMemcpyAsync(device[s], host[s], n * sizeof(gw_u64), hipMemcpyHostToDevice, stream[s]));
  }
  for (int r = 0; r < rounds; r++) {
    for (int s = 0; s < streams; s++) {
      launch_mix(stream[s], device[s], device[s], n, (gw_u64)r);
      const size_t part = n / rounds, at = part * (size_t)r;
      CHECK(hipMemcpyAsync(result[s] + at, device[s] + at, part * sizeof(gw_u64), hipMemcpyDeviceToHost,
                           stream[s]));
    }
  }
  for (int s = 0; s < streams; s++) CHECK(hipStreamSynchronize(stream[s]));
  for (int s = 0; s < streams; s++) {
    Words model = pattern_words(n, 100 + (gw_u64)s), want(n);
    for (int r = 0; r < rounds; r++) {
      cpu_mix(model, model, (gw_u64)r);
      const size_t part = n / rounds, at = part * (size_t)r;
      memcpy(&want[at], &model[at], part * sizeof(gw_u64));
    }
    SAME(result[s], want.data(), n * sizeof(gw_u64), "stream " + std::to_string(s));
    printf("stream %d %016llx\n", s, digest_of(want));
    CHECK(hipStreamDestroy(stream[s]));
    CHECK(hipHostFree(host[s]));
    CHECK(hipHostFree(result[s]));
    CHECK(hipFree(device[s]));
  }
}

/* A kernel works on pinned and on registered memory through its device pointer. */
static void kernels_on_host_memory(hipStream_t stream) {
  const size_t n = 5000;
  gw_u64 *pinned = pinned_words(n), *at = nullptr;
  Words model = pattern_words(n, 9);
  memcpy(pinned, model.data(), n * sizeof(gw_u64));
  CHECK(hipHostGetDevicePointer((void **)&at, pinned, 0));
  launch_mix(stream, at, at, n, 1);
  launch_mix(stream, at, at, n, 2);
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(model, model, 1);
  cpu_mix(model, model, 2);
  SAME(pinned, model.data(), n * sizeof(gw_u64), "kernels on pinned memory");
  CHECK(hipHostFree(pinned));

  Words registered = pattern_words(n, 10);
  model = registered;
  CHECK(hipHostRegister(registered.data(), n * sizeof(gw_u64), hipHostRegisterDefault));
  CHECK(hipHostGetDevicePointer((void **)&at, registered.data(), 0));
  launch_mix(stream, at, at, n, 3);
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(model, model, 3);
  SAME(registered.data(), model.data(), n * sizeof(gw_u64), "a kernel on registered memory");
  CHECK(hipHostUnregister(registered.data()));
  printf("kernels on host memory %016llx\n", digest_of(model));
}

/* The caller may change pageable memory as soon as the call has returned. */
static void pageable_source_is_free_at_return(hipStream_t stream) {
  const size_t n = 1000, parts = 20;
  gw_u64 *device = device_alloc<gw_u64>(n * parts);
  Words all;
  launch_busy(stream, 20 * MS);
  Words source(n);
  for (size_t i = 0; i < parts; i++) {
    fill_pattern(source.data(), n * sizeof(gw_u64), i);
    all.insert(all.end(), source.begin(), source.end());
    CHECK(hipMemcpyAsync(device + i * n, source.data(), n * sizeof(gw_u64), hipMemcpyHostToDevice, stream));
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(device, all, "reused pageable source");
  CHECK(hipFree(device));
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  single_stream(stream);
  side_by_side();
  kernels_on_host_memory(stream);
  pageable_source_is_free_at_return(stream);
  Words words = pattern_words(3000, 1), back(3000);
  gw_u64 *device = device_alloc<gw_u64>(3000);
  CHECK(hipMemcpyWithStream(device, words.data(), 24000, hipMemcpyHostToDevice, stream));
  CHECK(hipMemcpyDtoHAsync(back.data(), device, 24000, stream));
  CHECK(hipStreamSynchronize(stream));
  SAME(back.data(), words.data(), 24000, "hipMemcpyWithStream, hipMemcpyDtoHAsync");
  CHECK(hipFree(device));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
