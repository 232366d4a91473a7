// run: build -fsanitize=address -static-libasan | env ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0
/* A program with AddressSanitizer inside, which interposes half of libc before anything else runs. */
#include <thread>

#include "work.h"

int main() {
  for (int i = 0; i < 3; i++) printf("%016llx\n", whole_work(new_stream(), (gw_u64)i));
  std::thread([] { printf("%016llx\n", whole_work(hipStreamPerThread, 9)); }).join();
  return passed();
}
