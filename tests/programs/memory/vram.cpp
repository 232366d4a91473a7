// run: --vram 64 | every-mode
/* VRAM is shared between processes. Roles:
 *   vram hold GIB   allocates, says "held", keeps it until its input ends
 *   vram try GIB    allocates once and says what came of it
 *   vram all GIB    takes this much in 2 GiB pieces and runs kernels on the first and the last: a fresh
 * device vram            the parent: plays hold and try with children, each step known from pipes; on 64 GiB
 */
#include "processes.h"

/* Allocates and touches both ends. */
static hipError_t take(unsigned char **p, size_t bytes) {
  hipError_t error = hipMalloc((void **)p, bytes);
  if (error != hipSuccess) return error;
  Words want = pattern_words(512, bytes);
  gw_u64 *ends[] = {(gw_u64 *)*p, (gw_u64 *)(*p + bytes - 4096)};
  for (gw_u64 *end : ends) CHECK(hipMemcpy(end, want.data(), 4096, hipMemcpyHostToDevice));
  for (gw_u64 *end : ends) launch_mix(nullptr, end, end, 512, 1);
  cpu_mix(want, want, 1);
  for (gw_u64 *end : ends) SAME_WORDS(end, want, "the ends of a large allocation");
  return hipSuccess;
}

static int hold(size_t gib) {
  unsigned char *p = nullptr;
  CHECK(take(&p, gib * GIB));
  printf("held\n");
  wait_for_end_of_input();
  CHECK(hipFree(p));
  return passed();
}

static int try_once(size_t gib) {
  unsigned char *p = nullptr;
  hipError_t error = take(&p, gib * GIB);
  printf("%s\n", hipGetErrorName(error));
  if (error == hipSuccess) CHECK(hipFree(p));
  EXPECT(hipGetLastError(), error);
  return passed();
}

static int all(size_t gib) {
  std::vector<unsigned char *> pieces;
  for (size_t taken = 0; taken < gib; taken += 2) {
    unsigned char *p = nullptr;
    CHECK(take(&p, 2 * GIB));
    pieces.push_back(p);
  }
  launch_busy(nullptr, MS);
  CHECK(hipDeviceSynchronize());
  printf("took %zu GiB and ran\n", gib);
  return passed();
}

static void try_child(const char *want) {
  Child child = start_self({"try", "40"});
  std::string got = child.line();
  REQUIRE(got == want, "the second process got %s, expected %s", got.c_str(), want);
  printf("second process: %s\n", got.c_str());
  int status = child.end();
  REQUIRE(status == 0, "its status is %d", status);
}

static int parent() {
  Child holder = start_self({"hold", "40"});
  std::string line = holder.line();
  REQUIRE(line == "held", "the first process said %s", line.c_str());
  printf("first process holds 40 of 64 GiB\n");
  try_child("hipErrorOutOfMemory");
  try_child("hipErrorOutOfMemory");
  int status = holder.end();
  REQUIRE(status == 0, "the first process ended with %d", status);
  printf("first process has ended\n");
  try_child("hipSuccess");
  return passed();
}

int main(int argc, char **argv) {
  if (argc < 3) return parent();
  size_t gib = (size_t)atol(argv[2]);
  std::string role = argv[1];
  if (role == "hold") return hold(gib);
  if (role == "try") return try_once(gib);
  if (role == "all") return all(gib);
  FAIL("no role %s", role.c_str());
}
