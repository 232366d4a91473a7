// run: every-mode
/* Kernel launches: vector_add and mix against the CPU, grids from one block to many, order inside a stream, a
 * kernel that the simulated device does not know, and variables of the code object. */
#include "check.h"

__device__ int table_of_four[4] = {11, 22, 33, 44};
__constant__ float constant_value = 2.5f;

/* Not one of the project's kernels: gpu-sim lets it take its time and leaves memory alone. */
__global__ void stranger(gw_u64 *data, gw_u32 n, gw_u64 value) {
  gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = value;
}

static void vector_adds() {
  for (size_t n : {1, 63, 64, 255, 256, 257, 10007, 1000000}) {
    std::vector<float> a(n), b(n), want(n), got(n);
    for (size_t i = 0; i < n; i++) {
      a[i] = (float)(i % 1009) * 0.5f;
      b[i] = (float)(i % 13) - 7.25f;
      want[i] = a[i] + b[i];
    }
    float *da = device_alloc<float>(n), *db = device_alloc<float>(n), *dc = device_alloc<float>(n);
    CHECK(hipMemcpy(da, a.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(db, b.data(), n * sizeof(float), hipMemcpyHostToDevice));
    for (unsigned block : {64u, 256u, 1024u}) {
      CHECK(hipMemset(dc, 0xEE, n * sizeof(float)));
      vector_add<<<dim3((unsigned)((n + block - 1) / block)), dim3(block)>>>(da, db, dc, (gw_u32)n);
      CHECK(hipGetLastError());
      CHECK(hipMemcpy(got.data(), dc, n * sizeof(float), hipMemcpyDeviceToHost));
      SAME(got.data(), want.data(), n * sizeof(float), "vector_add of " + std::to_string(n));
    }
    CHECK(hipFree(da));
    CHECK(hipFree(db));
    CHECK(hipFree(dc));
    Digest digest;
    digest.add(want.data(), n * sizeof(float));
    printf("vector_add of %zu: %016llx\n", n, digest.value);
  }
}

/* A grid that ends before n, and one that ends after it: exactly the covered elements change. */
static void partial_grids() {
  const size_t n = 1000;
  Words want = pattern_words(n, 1), src = pattern_words(n, 2);
  gw_u64 *a = device_words(want), *b = device_words(src);
  mix<<<dim3(3), dim3(64)>>>(a, b, (gw_u32)n, 5);
  CHECK(hipGetLastError());
  for (size_t i = 0; i < 192; i++) want[i] = gw_mix_step(want[i], src[i], (gw_u32)i, 5);
  mix<<<dim3(100), dim3(128)>>>(a, b, 777, 6);
  CHECK(hipGetLastError());
  for (size_t i = 0; i < 777; i++) want[i] = gw_mix_step(want[i], src[i], (gw_u32)i, 6);
  mix<<<dim3(1), dim3(1)>>>(a, b, (gw_u32)n, 7);
  CHECK(hipGetLastError());
  want[0] = gw_mix_step(want[0], src[0], 0, 7);
  SAME_WORDS(a, want, "grids that do not fit n");
  printf("partial grids %016llx\n", digest_of(want));
  CHECK(hipFree(a));
  CHECK(hipFree(b));
}

static void sequences(hipStream_t stream) {
  for (size_t n : {1, 64, 1000, 262144}) {
    const int commands = n > 100000 ? 20 : 300;
    Words want = pattern_words(n, 3), other = pattern_words(n, 4);
    gw_u64 *a = device_words(want), *b = device_words(other);
    for (int i = 0; i < commands; i++) {
      gw_u64 value = (gw_u64)i * 0x1000003u;
      if (i % 3 == 0) {
        launch_mix(stream, a, b, n, value);
        cpu_mix(want, other, value);
      } else if (i % 3 == 1) {
        launch_mix(stream, b, a, n, value);
        cpu_mix(other, want, value);
      } else {
        launch_mix(stream, a, a, n, value);
        cpu_mix(want, want, value);
      }
    }
    CHECK(hipStreamSynchronize(stream));
    SAME_WORDS(a, want, "sequence of mix");
    SAME_WORDS(b, other, "sequence of mix");
    printf("%d commands on %zu elements %016llx %016llx\n", commands, n, digest_of(want), digest_of(other));
    CHECK(hipFree(a));
    CHECK(hipFree(b));
  }
}

/* A proof that the digest notices a swap: the CPU's result with two commands exchanged differs. */
static void swaps_are_seen() {
  Words right = pattern_words(16, 1), swapped = right;
  cpu_mix(right, right, 1);
  cpu_mix(right, right, 2);
  cpu_mix(swapped, swapped, 2);
  cpu_mix(swapped, swapped, 1);
  REQUIRE(digest_of(right) != digest_of(swapped), "the digest does not depend on the order");
}

static void unknown_kernel(hipStream_t stream) {
  const size_t n = 4096;
  Words want = pattern_words(n, 8);
  gw_u64 *a = device_words(want);
  stranger<<<dim3(16), dim3(256), 0, stream>>>(a, (gw_u32)n, 1);
  CHECK(hipGetLastError());
  launch_mix(stream, a, a, n, 3); /* what follows it runs */
  CHECK(hipStreamSynchronize(stream));
  cpu_mix(want, want, 3);
  SAME_WORDS(a, want, "an unknown kernel between known ones (simulated device)");
  printf("unknown kernel completed, memory left alone\n");
  CHECK(hipFree(a));
}

/* Initialised variables reach the device with the code object, and can be changed. */
static void symbols() {
  int values[4] = {0};
  CHECK(hipMemcpyFromSymbol(values, HIP_SYMBOL(table_of_four), sizeof values));
  REQUIRE(values[0] == 11 && values[3] == 44, "table holds %d .. %d", values[0], values[3]);
  int seven = 7;
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(table_of_four), &seven, sizeof seven, sizeof(int)));
  CHECK(hipMemcpyFromSymbol(values, HIP_SYMBOL(table_of_four), sizeof values));
  REQUIRE(values[0] == 11 && values[1] == 7 && values[2] == 33, "after the write: %d %d %d", values[0],
          values[1], values[2]);
  float constant = 0;
  CHECK(hipMemcpyFromSymbol(&constant, HIP_SYMBOL(constant_value), sizeof constant));
  REQUIRE(constant == 2.5f, "constant is %g", (double)constant);
  void *address = nullptr;
  size_t size = 0;
  CHECK(hipGetSymbolAddress(&address, HIP_SYMBOL(table_of_four)));
  CHECK(hipGetSymbolSize(&size, HIP_SYMBOL(table_of_four)));
  REQUIRE(address != nullptr && size == sizeof values, "symbol of %zu bytes", size);
  printf("symbols %d %d %d %d %g\n", values[0], values[1], values[2], values[3], (double)constant);
}

/* Arguments belong to the launch: the caller's copies may change as soon as the call has returned. */
static void arguments_are_copied(hipStream_t stream) {
  const size_t n = 512;
  Words want = pattern_words(n, 21);
  gw_u64 *a = device_words(want), *dst = a;
  const gw_u64 *src = a;
  gw_u32 count = (gw_u32)n;
  gw_u64 value = 0;
  void *arguments[] = {&dst, &src, &count, &value};
  launch_busy(stream, 20 * MS);
  for (int i = 0; i < 50; i++) {
    dst = a;
    src = a;
    count = (gw_u32)n;
    value = (gw_u64)i;
    CHECK(hipLaunchKernel((const void *)mix, dim3(2), dim3(256), arguments, 0, stream));
    cpu_mix(want, want, value);
    dst = nullptr;
    src = nullptr;
    count = 0;
    value = ~0ull;
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "arguments changed after the launch");
  printf("arguments are copied %016llx\n", digest_of(want));
  CHECK(hipFree(a));
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  vector_adds();
  partial_grids();
  sequences(stream);
  sequences(nullptr);
  swaps_are_seen();
  unknown_kernel(stream);
  symbols();
  arguments_are_copied(stream);
  CHECK(hipStreamDestroy(stream));
  return passed();
}
