// run: plain
/* Arguments by value, from one byte to nearly 4 KiB: each launch has those of its call, whatever happens to the caller's
 * copies afterwards. */
#include "check.h"

template <typename T>
static gw_u64 digest(gw_u64 so_far, const T &value) {
  const unsigned char *bytes = (const unsigned char *)&value;
  for (size_t i = 0; i < sizeof value; i++) so_far = (so_far ^ bytes[i]) * 0x100000001B3ull;
  return so_far;
}

int main() {
  const size_t n = 300;
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  gw_u64 *out = device_words(Words(n));
  Words want(n);
  launch_busy(stream, 2 * MS);
  for (size_t i = 0; i < n; i += 2) {
    gw_u64 *to = out + i;
    {
      gw_block block;
      fill_pattern(&block, sizeof block, i);
      want[i] = digest(GW_DIGEST, block);
      void *arguments[] = {&to, &block};
      CHECK(hipLaunchKernel((const void *)arguments_block, dim3(1), dim3(64), arguments, 0, stream));
      memset(&block, 0xEE, sizeof block);
      memset(arguments, 0xEE, sizeof arguments);
    }
    to = out + i + 1;
    unsigned char a = (unsigned char)i;
    unsigned short b = (unsigned short)(i * 3);
    gw_three c = {{1, (unsigned char)i, 3}};
    gw_u32 d = (gw_u32)i * 5;
    gw_u64 e = i * 7;
    double f = (double)i / 3;
    gw_five g = {{i, 2, 3, 4, i}};
    want[i + 1] =
        digest(digest(digest(digest(digest(digest(digest(GW_DIGEST, a), b), c), d), e), f), g);
    void *arguments[] = {&to, &a, &b, &c, &d, &e, &f, &g};
    CHECK(hipLaunchKernel((const void *)arguments_mixed, dim3(1), dim3(64), arguments, 0, stream));
    a = 0;
    b = 0;
    c = {{0, 0, 0}};
    d = 0;
    e = 0;
    f = 0;
    g = {{0, 0, 0, 0, 0}};
    to = nullptr;
    memset(arguments, 0, sizeof arguments);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(out, want, "what the kernels were given");
  printf("%zu launches %016llx\n", n, digest_of(want));
  return passed();
}
