// run: --vram 8 | every-mode
/* Out of memory on an 8 GiB device: the allocation that does not fit fails, nothing else does, and what was
 * freed can be had again. */
#include "check.h"

static const size_t TOTAL = 8 * GIB;

/* Takes pieces until the device has no more. */
static std::vector<void *> take_all(size_t piece) {
  std::vector<void *> pieces;
  for (;;) {
    void *p = nullptr;
    hipError_t error = hipMalloc(&p, piece);
    if (error != hipSuccess) {
      REQUIRE(error == hipErrorOutOfMemory, "piece %zu: %s", pieces.size(), hipGetErrorName(error));
      EXPECT(hipGetLastError(), hipErrorOutOfMemory);
      EXPECT(hipGetLastError(), hipSuccess);
      return pieces;
    }
    pieces.push_back(p);
    REQUIRE(pieces.size() * piece <= TOTAL, "%zu pieces of %zu bytes fit on 8 GiB", pieces.size(), piece);
  }
}

static size_t free_bytes() {
  size_t left = 0, total = 0;
  CHECK(hipMemGetInfo(&left, &total));
  REQUIRE(left <= total, "free %zu of %zu", left, total);
  REQUIRE(total <= TOTAL && total >= TOTAL - 512 * MIB, "total is %zu", total);
  return left;
}

/* What was freed is had again. On 6.4.3 a command that is over can have the memory a while longer, natively as well (14 of 40
 * runs on a busy machine). */
static void again(void **p, size_t piece) {
  const bool never = never_in(HIP_VERSION_MAJOR >= 6 ? 10000 * MS : 0, [&] {
    const hipError_t error = hipMalloc(p, piece);
    if (error == hipSuccess) return true;
    EXPECT(error, hipErrorOutOfMemory);
    EXPECT(hipGetLastError(), hipErrorOutOfMemory);
    return false;
  });
  REQUIRE(!never, "%zu bytes that were freed are not had again", piece);
}

/* What the runtime needs for copies and launches it takes when it first makes one; newer ones abort if they cannot. */
static void warm_up() {
  Words want = pattern_words(1024, 1);
  gw_u64 *a = device_words(want);
  launch_mix(nullptr, a, a, 1024, 1);
  cpu_mix(want, want, 1);
  SAME_WORDS(a, want, "with all memory free");
  CHECK(hipFree(a));
}

int main() {
  warm_up();
  const size_t before = free_bytes(), piece = 256 * MIB;
  void *p = nullptr;
  EXPECT(hipMalloc(&p, 100 * GIB), hipErrorOutOfMemory);
  EXPECT(hipMalloc(&p, TOTAL + 4096), hipErrorOutOfMemory);
  CHECK(hipMalloc(&p, 0));
  REQUIRE(p == nullptr, "an allocation of nothing is not null");
  std::vector<void *> pieces = take_all(piece);
  REQUIRE(pieces.size() * piece >= TOTAL - GIB, "only %zu pieces of 256 MiB fit on 8 GiB", pieces.size());
  REQUIRE(free_bytes() + pieces.size() * piece <= before, "%zu bytes are free after all", free_bytes());
  printf("true out of memory\n");

  /* The pieces are different memory: each keeps its own contents. */
  std::vector<Words> want;
  for (size_t i = 0; i < pieces.size(); i++) {
    want.push_back(pattern_words(1024, i));
    CHECK(hipMemcpy(pieces[i], want[i].data(), 8192, hipMemcpyHostToDevice));
  }
  for (size_t i = 0; i < pieces.size(); i++) {
    launch_mix(nullptr, (gw_u64 *)pieces[i], (gw_u64 *)pieces[i], 1024, i);
    cpu_mix(want[i], want[i], i);
  }
  Digest digest;
  for (size_t i = 0; i < 16; i++) {
    SAME_WORDS((gw_u64 *)pieces[i], want[i], "piece " + std::to_string(i));
    digest.add(want[i]);
  }
  printf("pieces keep their contents %016llx\n", digest.value);

  /* One freed, one had; two freed, a piece twice as large fails or not, but pieces of the old size fit. */
  for (size_t i = 0; i < 8; i++) {
    CHECK(hipFree(pieces[i]));
    again(&pieces[i], piece);
  }
  EXPECT(hipMalloc(&p, piece), hipErrorOutOfMemory);
  printf("freed memory can be had again\n");
  size_t count = pieces.size();
  for (void *q : pieces) CHECK(hipFree(q));
  /* For the same reason as in `again`. */
  never_in(HIP_VERSION_MAJOR >= 6 ? 10000 * MS : 0, [&] { return free_bytes() == before; });
  REQUIRE(free_bytes() == before, "%zu bytes are free, %zu at first", free_bytes(), before);
  pieces = take_all(piece);
  REQUIRE(pieces.size() == count, "%zu pieces now, %zu at first", pieces.size(), count);
  for (void *q : pieces) CHECK(hipFree(q));
  printf("all of it again\n");
  return passed();
}
