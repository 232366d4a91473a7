// run: plain
/* Kernels compiled in the process by hiprtc, launched with parameters and with `extra`; their module is loaded again under
 * the same name, and unloaded while their work is pending. */
#include <hip/hiprtc.h>

#include "check.h"

static const char *const SOURCE = R"(
extern "C" __global__ void mix(unsigned long long *dst, const unsigned long long *src, unsigned int n,
                               unsigned long long value) {
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long s = src[i];
  unsigned long long x = dst[i] + ((s << 17) | (s >> 47)) + value + i * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  if (i < n) dst[i] = x ^ (x >> 31);
}
)";

static void must(hiprtcResult result) { REQUIRE(result == HIPRTC_SUCCESS, "%s", hiprtcGetErrorString(result)); }

int main() {
  const size_t n = 1024;
  hiprtcProgram program;
  must(hiprtcCreateProgram(&program, SOURCE, "mix.hip", 0, nullptr, nullptr));
  hipDeviceProp_t device;
  CHECK(hipGetDeviceProperties(&device, 0));
  std::string architecture = std::string("--gpu-architecture=") + device.gcnArchName;
  const char *options[] = {architecture.c_str()};
  must(hiprtcCompileProgram(program, 1, options));
  size_t size = 0;
  must(hiprtcGetCodeSize(program, &size));
  std::vector<char> code(size);
  must(hiprtcGetCode(program, code.data()));
  must(hiprtcDestroyProgram(&program));

  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want);
  for (int round = 0; round < 6; round++) {
    hipModule_t module;
    hipFunction_t function;
    CHECK(hipModuleLoadData(&module, code.data()));
    if (round == 0) show("a name that it lacks", hipModuleGetFunction(&function, module, "mixx"));
    CHECK(hipModuleGetFunction(&function, module, "mix"));
    launch_busy(stream, MS);
    for (gw_u64 i = 0; i < 6; i++) {
      struct {
        gw_u64 *dst;
        const gw_u64 *src;
        gw_u32 n;
        gw_u64 value;
      } arguments = {data, data, (gw_u32)n, i};
      size_t bytes = sizeof arguments;
      void *params[] = {&arguments.dst, &arguments.src, &arguments.n, &arguments.value};
      void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                       HIP_LAUNCH_PARAM_END};
      CHECK(hipModuleLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, i % 2 ? params : nullptr,
                                  i % 2 ? nullptr : extra));
      memset((void *)&arguments, 0, sizeof arguments);
      cpu_mix(want, want, i);
    }
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipModuleUnload(module));
  }
  SAME_WORDS(data, want, "kernels of hiprtc");
  printf("%016llx\n", digest_of(want));
  return passed();
}
