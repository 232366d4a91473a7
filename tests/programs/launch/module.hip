// run: loads module_kernels | every-mode
/* The module interface: loading from a file and from memory, functions, variables, launches with kernelParams
 * and with `extra`. Argument 1: the path of module_kernels built with --genco. */
#include <hip/hip_ext.h>

#include "check.h"

static Bytes read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  REQUIRE(file != nullptr, "cannot open the code object");
  Bytes bytes;
  unsigned char part[65536];
  for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) bytes.insert(bytes.end(), part, part + n);
  fclose(file);
  return bytes;
}

struct MixArguments {
  gw_u64 *dst;
  const gw_u64 *src;
  gw_u32 n;
  gw_u64 value;
};

static gw_u64 use_module(hipModule_t module, hipStream_t stream) {
  hipFunction_t mix_function, busy_function, none;
  CHECK(hipModuleGetFunction(&mix_function, module, "mix"));
  CHECK(hipModuleGetFunction(&busy_function, module, "busy"));
  EXPECT(hipModuleGetFunction(&none, module, "no_such_kernel"), hipErrorNotFound);

  hipDeviceptr_t table = nullptr;
  size_t table_bytes = 0;
  unsigned int values[8] = {0};
  CHECK(hipModuleGetGlobal(&table, &table_bytes, module, "module_table"));
  REQUIRE(table_bytes == sizeof values, "module_table has %zu bytes", table_bytes);
  CHECK(hipMemcpyDtoH(values, table, sizeof values));
  REQUIRE(values[0] == 1 && values[7] == 21, "module_table holds %u .. %u", values[0], values[7]);

  const size_t n = 3000;
  Words want = pattern_words(n, 1), src = pattern_words(n, 2);
  gw_u64 *a = device_words(want), *b = device_words(src);
  MixArguments arguments = {a, b, (gw_u32)n, 0};
  void *params[] = {&arguments.dst, &arguments.src, &arguments.n, &arguments.value};
  size_t size = sizeof arguments;
  void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   HIP_LAUNCH_PARAM_END};
  gw_u64 nanoseconds = 5 * MS;
  gw_u32 rounds = 1;
  void *busy_params[] = {&nanoseconds, &rounds};
  CHECK(hipModuleLaunchKernel(busy_function, 1, 1, 1, 64, 1, 1, 0, stream, busy_params, nullptr));
  for (int i = 0; i < 60; i++) {
    arguments.value = (gw_u64)i + 10;
    switch (i % 3) {
      case 0:
        CHECK(hipModuleLaunchKernel(mix_function, 12, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
        break;
      case 1:
        CHECK(hipModuleLaunchKernel(mix_function, 12, 1, 1, 256, 1, 1, 0, stream, nullptr, extra));
        break;
      default: /* sizes of the whole grid in work-items, not in blocks */
        CHECK(hipExtModuleLaunchKernel(mix_function, 3072, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
        break;
    }
    cpu_mix(want, src, arguments.value);
    arguments.value = ~0ull; /* the launch has its own copy */
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(a, want, "launches through the module interface");
  EXPECT(hipModuleLaunchKernel(mix_function, 1, 1, 1, 256, 1, 1, 0, stream, params, extra),
         hipErrorInvalidValue);
  CHECK(hipFree(a));
  CHECK(hipFree(b));
  return digest_of(want);
}

int main(int argc, char **argv) {
  REQUIRE(argc > 1, "usage: module CODE_OBJECT");
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  hipModule_t from_file, from_data, none;
  CHECK(hipModuleLoad(&from_file, argv[1]));
  printf("from a file %016llx\n", use_module(from_file, stream));
  Bytes image = read_file(argv[1]);
  CHECK(hipModuleLoadData(&from_data, image.data()));
  printf("from memory %016llx\n", use_module(from_data, stream));
  CHECK(hipModuleUnload(from_file));
  printf("after the other was unloaded %016llx\n", use_module(from_data, stream));
  CHECK(hipModuleUnload(from_data));
  EXPECT(hipModuleLoad(&none, "/nonexistent/code.hsaco"), hipErrorFileNotFound);
  CHECK(hipStreamDestroy(stream));
  return passed();
}
