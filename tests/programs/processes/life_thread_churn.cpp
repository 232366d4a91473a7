// run: plain
/* 60 threads one after the other, each with the default stream, its own and one that it makes. */
#include <thread>

#include "work.h"

int main() {
  Sum sum(1), own(2), made(3);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 60; i++) {
    std::thread([&] {
      sum.launch(nullptr, 1);
      own.launch(hipStreamPerThread, 1);
      hipStream_t stream = new_stream(i % 2 ? hipStreamNonBlocking : hipStreamDefault);
      made.launch(stream, 1);
      CHECK(hipStreamSynchronize(stream));
      CHECK(hipStreamDestroy(stream));
      CHECK(hipStreamSynchronize(hipStreamPerThread));
    }).join();
  }
  CHECK(hipDeviceSynchronize());
  printf("%016llx %016llx %016llx\n", sum.check("default"), own.check("own"), made.check("made"));
  return passed();
}
