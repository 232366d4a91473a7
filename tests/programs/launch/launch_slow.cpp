// run: slow-path
/* Launches that nobody can make later for the caller: cooperative ones that are larger than any before. They keep their place
 * in the order, and the same once more need not wait. Says "ready" and ends at the end of the input. */
#include "processes.h"

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
  Words want = pattern_words(1000, 3);
  gw_u64 *data = device_words(want), value = 0;
  gw_u32 count = 1000;
  void *arguments[] = {&data, &data, &count, &value};
  for (unsigned blocks : {4, 4, 8, 4, 8}) {
    launch_mix(stream, data, data, count, 100 + value);
    cpu_mix(want, want, 100 + value);
    CHECK(hipLaunchCooperativeKernel((void *)mix, dim3(blocks), dim3(256), arguments, 0, stream));
    cpu_mix(want, want, value);
    value++;
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "cooperative launches between others");
  printf("ready\n");
  wait_for_end_of_input();
  CHECK(hipFree(data));
  CHECK(hipStreamDestroy(stream));
  return passed();
}
