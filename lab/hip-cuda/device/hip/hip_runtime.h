/* Replaces AMD's hip/hip_runtime.h when scripts/hip-cuda compiles the device code of this project's programs
 * to PTX. It defines the keywords of HIP, the thread and block indices, and the built-in functions of AMD's
 * devices that the kernels call. clang parses host code against AMD's own hip_runtime_api.h and generates
 * nothing for it. */
#ifndef GIVEWAY_HIP_CUDA_HIP_RUNTIME_H
#define GIVEWAY_HIP_CUDA_HIP_RUNTIME_H

#include <hip/hip_runtime_api.h>

#include <cstdint>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define HIP_SYMBOL(variable) variable

/* clang looks this up for `<<<...>>>` in host code. */
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);

#define HIP_CUDA_INDEX(name, special)                                                       \
  struct hip_cuda_##special {                                                               \
    static __device__ unsigned get_x() { return __nvvm_read_ptx_sreg_##special##_x(); }     \
    static __device__ unsigned get_y() { return __nvvm_read_ptx_sreg_##special##_y(); }     \
    static __device__ unsigned get_z() { return __nvvm_read_ptx_sreg_##special##_z(); }     \
    __declspec(property(get = get_x)) unsigned x;                                           \
    __declspec(property(get = get_y)) unsigned y;                                           \
    __declspec(property(get = get_z)) unsigned z;                                           \
  };                                                                                        \
  static const __device__ hip_cuda_##special name = {};
HIP_CUDA_INDEX(threadIdx, tid)
HIP_CUDA_INDEX(blockIdx, ctaid)
HIP_CUDA_INDEX(blockDim, ntid)
HIP_CUDA_INDEX(gridDim, nctaid)
#undef HIP_CUDA_INDEX

/* AMD's constant clock runs at 100 MHz; %globaltimer counts nanoseconds. */
static __device__ inline unsigned long long hip_cuda_ticks() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now / 10;
}
static __device__ inline unsigned long long wall_clock64() { return hip_cuda_ticks(); }
/* Takes as long as AMD's s_sleep of a few hundred cycles. Without it the kernel would poll the clock without
 * pause. */
static __device__ inline void hip_cuda_pause() { asm volatile("nanosleep.u32 400;"); }
#define __builtin_amdgcn_s_memrealtime() hip_cuda_ticks()
#define __builtin_readsteadycounter() hip_cuda_ticks()
#define __builtin_amdgcn_s_sleep(cycles) hip_cuda_pause()

#endif
