/* Streams come and go all the time; each does its own work, and the process does not grow with them. */
#include "check.h"

static const int WARM = 300, CYCLES = 4000;

static size_t resident_pages() {
  FILE *file = fopen("/proc/self/statm", "r");
  REQUIRE(file != nullptr, "no /proc/self/statm");
  size_t size = 0, resident = 0;
  REQUIRE(fscanf(file, "%zu %zu", &size, &resident) == 2, "/proc/self/statm has another form");
  fclose(file);
  return resident;
}

int main() {
  Words model(64, 0);
  gw_u64 *device = device_words(model);
  CHECK(hipDeviceSynchronize());
  auto cycle = [&](int i) {
    hipStream_t stream;
    CHECK(hipStreamCreateWithFlags(&stream, i % 2 ? hipStreamNonBlocking : hipStreamDefault));
    launch_mix(stream, device, device, 64, i);
    cpu_mix(model, model, i);
    if (i % 3) CHECK(hipStreamSynchronize(stream));
    CHECK(hipStreamDestroy(stream));
    if (i % 3 == 0) CHECK(hipDeviceSynchronize());
  };
  for (int i = 0; i < WARM; i++) cycle(i);
  size_t before = resident_pages();
  for (int i = 0; i < CYCLES; i++) cycle(i);
  size_t grown = resident_pages() - before;
  /* Natively a cycle leaves nothing; a queue that is not used again would leave more than a kilobyte. */
  fprintf(stderr, "grown %zu\n", grown); REQUIRE(grown < CYCLES / 8, "%zu pages more after %d streams", grown, CYCLES);
  SAME_WORDS(device, model, "each stream's work, in order");
  CHECK(hipFree(device));
  return passed();
}
