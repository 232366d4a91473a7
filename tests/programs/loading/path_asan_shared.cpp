// run: build -fsanitize=address | env ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0:verify_asan_link_order=0
/* The same with the sanitizer in a library of its own, which then comes behind what is preloaded. */
#include <thread>

#include "work.h"

int main() {
  for (int i = 0; i < 3; i++) printf("%016llx\n", whole_work(new_stream(), (gw_u64)i));
  std::thread([] { printf("%016llx\n", whole_work(hipStreamPerThread, 9)); }).join();
  return passed();
}
