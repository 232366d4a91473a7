// run: loads module_kernels | slow-path
/* hipModuleLaunchKernel with `extra`: one buffer, its size and the list itself are used again and changed right after each
 * call; wrong lists are refused. Argument 1: module_kernels. */
#include "check.h"

struct MixArguments {
  gw_u64 *dst;
  const gw_u64 *src;
  gw_u32 n;
  gw_u64 value;
};

struct BlockArguments {
  gw_u64 *out;
  gw_block block;
};

int main(int, char **argv) {
  const size_t n = 2000;
  hipStream_t stream;
  hipModule_t module;
  hipFunction_t mix_function, block_function;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipModuleLoad(&module, argv[1]));
  CHECK(hipModuleGetFunction(&mix_function, module, "mix"));
  CHECK(hipModuleGetFunction(&block_function, module, "arguments_block"));
  Words want = pattern_words(n, 1);
  gw_u64 *data = device_words(want), *digests = device_words(Words(50));
  unsigned char buffer[sizeof(BlockArguments)];
  size_t size = 0;
  void *extra[5];
  launch_busy(stream, 2 * MS);
  Words blocks(50);
  for (gw_u64 i = 0; i < 50; i++) {
    void *list[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                    HIP_LAUNCH_PARAM_END};
    memcpy(extra, list, sizeof extra);
    MixArguments mix_arguments = {data, data, (gw_u32)n, i};
    memcpy(buffer, &mix_arguments, sizeof mix_arguments);
    size = sizeof mix_arguments;
    CHECK(hipModuleLaunchKernel(mix_function, 8, 1, 1, 256, 1, 1, 0, stream, nullptr, extra));
    cpu_mix(want, want, i);
    BlockArguments block_arguments;
    block_arguments.out = digests + i;
    fill_pattern(&block_arguments.block, sizeof block_arguments.block, i);
    memcpy(buffer, &block_arguments, sizeof block_arguments);
    size = sizeof block_arguments;
    CHECK(hipModuleLaunchKernel(block_function, 1, 1, 1, 64, 1, 1, 0, stream, nullptr, extra));
    blocks[i] = GW_DIGEST;
    for (unsigned char byte : block_arguments.block.bytes) blocks[i] = (blocks[i] ^ byte) * 0x100000001B3ull;
    memset(buffer, 0xEE, sizeof buffer);
    size = 1;
    memset(extra, 0, sizeof extra);
  }
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "mix by `extra`");
  SAME_WORDS(digests, blocks, "blocks by `extra`");
  printf("%016llx %016llx\n", digest_of(want), digest_of(blocks));
  void *swapped[] = {HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer,
                     HIP_LAUNCH_PARAM_END};
  show("a list in another order",
       hipModuleLaunchKernel(mix_function, 8, 1, 1, 256, 1, 1, 0, stream, nullptr, swapped));
  void *endless[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, buffer, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, nullptr};
  show("a list without its end",
       hipModuleLaunchKernel(mix_function, 8, 1, 1, 256, 1, 1, 0, stream, nullptr, endless));
  CHECK(hipStreamSynchronize(stream));
  SAME_WORDS(data, want, "what was refused");
  CHECK(hipModuleUnload(module));
  return passed();
}
