// run: plain
/* The source of a pageable copy is unmapped, freed or on a stack that is gone, the moment the call returns. */
#include <sys/mman.h>

#include "check.h"

static const size_t PIECE = 96 * KIB;

/* From this frame, which ends. */
__attribute__((noinline)) static void from_the_stack(unsigned char *to, gw_u64 seed, hipStream_t stream) {
  unsigned char bytes[PIECE];
  fill_pattern(bytes, PIECE, seed);
  CHECK(hipMemcpyAsync(to, bytes, PIECE, hipMemcpyHostToDevice, stream));
  volatile unsigned char *gone = bytes;
  for (size_t i = 0; i < PIECE; i += 64) gone[i] = 0;
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  const int pieces = 24;
  unsigned char *device = device_alloc<unsigned char>(pieces * PIECE);
  launch_busy(stream, 10 * MS);
  Bytes want;
  for (int i = 0; i < pieces; i++) {
    unsigned char *to = device + (size_t)i * PIECE;
    Bytes piece = pattern(PIECE, (gw_u64)i);
    want.insert(want.end(), piece.begin(), piece.end());
    if (i % 3 == 0) {
      void *p = mmap(nullptr, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(p != MAP_FAILED, "no memory");
      memcpy(p, piece.data(), PIECE);
      CHECK(hipMemcpyAsync(to, p, PIECE, hipMemcpyHostToDevice, stream));
      munmap(p, PIECE);
    } else if (i % 3 == 1) {
      void *p = malloc(PIECE);
      memcpy(p, piece.data(), PIECE);
      CHECK(hipMemcpyHtoDAsync((hipDeviceptr_t)to, p, PIECE, stream));
      memset(p, 0, PIECE);
      free(p);
    } else {
      from_the_stack(to, (gw_u64)i, stream);
    }
  }
  CHECK(hipStreamSynchronize(stream));
  Bytes got(want.size());
  CHECK(hipMemcpy(got.data(), device, got.size(), hipMemcpyDeviceToHost));
  SAME(got.data(), want.data(), want.size(), "sources that are gone");
  Digest digest;
  digest.add(got);
  printf("%016llx\n", digest.value);
  return passed();
}
