// run: plain
/* Linked calls, and the names looked up in every way that leads to the same library: one address each, and each works. */
#include <dlfcn.h>

#include "work.h"

typedef hipError_t (*Launch)(const void *, dim3, dim3, void **, size_t, hipStream_t);

int main() {
  void *runtime = dlopen(RUNTIME, RTLD_LAZY | RTLD_NOLOAD);
  REQUIRE(runtime != nullptr, "%s", dlerror());
  void *self = dlopen(nullptr, RTLD_LAZY);
  void *linked = (void *)&hipLaunchKernel;
  void *found[] = {dlsym(RTLD_DEFAULT, "hipLaunchKernel"), dlsym(runtime, "hipLaunchKernel"),
                   dlsym(self, "hipLaunchKernel"), dlvsym(RTLD_DEFAULT, "hipLaunchKernel", "hip_4.2"),
                   dlvsym(runtime, "hipLaunchKernel", "hip_4.2"), dlsym(RTLD_NEXT, "hipLaunchKernel")};
  Sum sum(1);
  hipStream_t stream = new_stream();
  for (void *each : found) {
    REQUIRE(each != nullptr, "%s", dlerror());
    sum.launch(stream, 2);
    gw_u64 *device = sum.device;
    gw_u32 count = (gw_u32)sum.want.size();
    gw_u64 value = 99;
    void *arguments[] = {&device, &device, &count, &value};
    CHECK(((Launch)each)((const void *)mix, dim3((count + 255) / 256), dim3(256), arguments, 0, stream));
    cpu_mix(sum.want, sum.want, 99);
    printf("%s\n", each == linked ? "the linked function" : "another");
  }
  CHECK(hipStreamSynchronize(stream));
  printf("%016llx\n", sum.check("launches by every way"));
  for (const char *name : {"hipGetDevice", "hipLaunchKernel", "hipNoSuchFunction"}) {
    dlerror();
    void *one = dlvsym(runtime, name, "hip_9.9");
    printf("%s in a version that is none: %d, error %d\n", name, one != nullptr, dlerror() != nullptr);
  }
  printf("mangled %d\n",
         dlsym(runtime, "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j") != nullptr);
  return passed();
}
