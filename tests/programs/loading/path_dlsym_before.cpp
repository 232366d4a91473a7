// run: loads preload_dlsym
/* Another hook of dlsym, preloaded before the others: it sees the look-ups of the program, and they find what they find. */
#include "preload.h"

int main(int, char **argv) {
  preload(argv, argv[1], true);
  void *runtime = dlopen(RUNTIME, RTLD_LAZY | RTLD_NOLOAD);
  int before = interposed(0);
  auto launch = (decltype(&hipLaunchKernel))dlsym(runtime, "hipLaunchKernel");
  REQUIRE(launch != nullptr && dlsym(runtime, "hipNoSuchFunction") == nullptr, "wrong answers");
  printf("%s\n", interposed(0) > before ? "seen" : "not seen");
  hipStream_t stream = new_stream();
  Sum sum(1);
  for (int i = 0; i < 20; i++) {
    sum.launch(stream, 1);
    gw_u64 *device = sum.device;
    gw_u32 count = (gw_u32)sum.want.size();
    gw_u64 value = 7;
    void *arguments[] = {&device, &device, &count, &value};
    CHECK(launch((const void *)mix, dim3((count + 255) / 256), dim3(256), arguments, 0, stream));
    cpu_mix(sum.want, sum.want, 7);
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("work"));
  return passed();
}
