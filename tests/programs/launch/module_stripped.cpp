// run: loads module_kernels
/* Code without the descriptions of its kernels, of all or of their arguments: whether it is taken, with work pending. Such
 * a kernel is not launched: what it would be given, nobody knows, the runtime neither. Argument 1: the path of module_kernels built with --genco. */
#include "work.h"

static Bytes read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  REQUIRE(file != nullptr, "cannot open the code object");
  Bytes bytes;
  unsigned char part[65536];
  for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) bytes.insert(bytes.end(), part, part + n);
  fclose(file);
  return bytes;
}

/* Replaces a text everywhere by another one of the same length. */
static size_t replace(Bytes &bytes, const char *from, const char *to) {
  const size_t length = strlen(from);
  REQUIRE(strlen(to) == length, "%s and %s differ in length", from, to);
  size_t count = 0;
  for (size_t at = 0; at + length <= bytes.size(); at++) {
    if (memcmp(&bytes[at], from, length) == 0) memcpy(&bytes[at], to, length), count++;
  }
  return count;
}

struct MixArguments {
  gw_u64 *dst;
  const gw_u64 *src;
  gw_u32 n;
  gw_u64 value;
};

static void use(const char *what, const Bytes &image, bool ask, bool launch) {
  printf("%s\n", what);
  hipStream_t stream = new_stream();
  Sum sum(3);
  CHECK(hipDeviceSynchronize());
  launch_busy(stream, 20 * MS);
  sum.launch(stream, 5);
  hipModule_t module = nullptr;
  hipError_t loaded = hipModuleLoadData(&module, image.data());
  show("  loaded", loaded);
  hipFunction_t function = nullptr;
  if (loaded == hipSuccess && ask) {
    hipError_t found = hipModuleGetFunction(&function, module, "mix");
    show("  found", found);
    if (found != hipSuccess) function = nullptr;
  }
  if (function != nullptr && launch) {
    const Words before = pattern_words(3000, 1);
    gw_u64 *a = device_words(before);
    CHECK(hipDeviceSynchronize());
    sum.launch(stream, 5);
    MixArguments arguments = {a, a, (gw_u32)before.size(), 7};
    size_t size = sizeof arguments;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     HIP_LAUNCH_PARAM_END};
    void *params[] = {&arguments.dst, &arguments.src, &arguments.n, &arguments.value};
    show("  with extra", hipModuleLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, stream, nullptr, extra));
    show("  with params", hipModuleLaunchKernel(function, 12, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
    sum.launch(stream, 5);
    show("  synchronized", hipStreamSynchronize(stream));
    printf("  memory %016llx\n", digest_of(read_words(a, before.size())));
    CHECK(hipFree(a));
  }
  CHECK(hipStreamSynchronize(stream));
  printf("  %016llx\n", sum.check("the work around"));
  if (loaded == hipSuccess) show("  unloaded", hipModuleUnload(module));
  CHECK(hipStreamDestroy(stream));
}

int main(int argc, char **argv) {
  REQUIRE(argc > 1, "usage: module_stripped CODE_OBJECT");
  const Bytes whole = read_file(argv[1]);
  use("whole", whole, true, true);
  Bytes image = whole;
  REQUIRE(replace(image, "AMDGPU\0", "XMDGPU\0") > 0, "no note");
  use("no note of AMD's", image, true, false);
  image = whole;
  REQUIRE(replace(image, "amdhsa.kernels", "amdhsa.kernelz") > 0, "no kernels");
  use("no kernels described", image, false, false); /* the runtime ends a process that asks it for one of these */
  image = whole;
  REQUIRE(replace(image, ".args", ".argz") > 0, "no arguments");
  use("no arguments described", image, true, false);
  return passed();
}
