/* The project's own kernels, in one place: compiled by hipcc into test programs, by hiprtc into xbench,
 * and executed natively by gpu-sim, which knows them by these names and argument lists.
 * Plain device code: they run on a real GPU as well.
 *
 * Change a signature or a formula here and lab/gpu-sim/src/kernels/ must follow; a test compares the two. */
#ifndef GIVEWAY_KERNELS_H
#define GIVEWAY_KERNELS_H

typedef unsigned int gw_u32;
typedef unsigned long long gw_u64;

#if defined(__HIPCC_RTC__)
#define GW_BOTH __device__
#elif defined(__HIP__)
#define GW_BOTH __host__ __device__
#else
#define GW_BOTH /* host code: below are declarations, linked with giveway_kernels.hip */
#endif

/* Arguments by value: nearly all of the 4 KiB that a launch may have, three bytes, and five words. */
typedef struct {
  unsigned char bytes[4080];
} gw_block;
typedef struct {
  unsigned char bytes[3];
} gw_three;
typedef struct {
  gw_u64 words[5];
} gw_five;

/* Where a digest of arguments begins. */
#define GW_DIGEST 0xCBF29CE484222325ull

/* One step of `mix` for element i. Not commutative and not idempotent in `value`: the final contents
 * tell whether two commands were swapped, repeated or lost. */
GW_BOTH static inline gw_u64 gw_mix_step(gw_u64 dst, gw_u64 src, gw_u32 i, gw_u64 value) {
  gw_u64 x = dst + ((src << 17) | (src >> 47)) + value + (gw_u64)i * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/* What `keep_few` and `keep_many` hold while they run: word k in the registers of work-item i, and word w in the local memory of
 * work-group g. All follows from `seed`, so the host knows it as well. */
GW_BOTH static inline gw_u32 gw_kept_register(gw_u64 seed, gw_u32 i, gw_u32 k) {
  return (gw_u32)gw_mix_step(seed, 0, i, 0) + k * 0x9E3779B9u;
}
GW_BOTH static inline gw_u32 gw_kept_local(gw_u64 seed, gw_u32 g, gw_u32 w) {
  return (gw_u32)(gw_mix_step(~seed, 0, w, g) >> 32);
}
GW_BOTH static inline gw_u64 gw_kept_digest(gw_u64 digest, gw_u32 word) { return (digest ^ word) * 0x100000001B3ull; }

/* The longest time between two looks at the clock that counts as running, in ticks of the constant clock (10 us). The loop below looks
 * every microsecond or so. The clock goes on while a wave is off the hardware, so a longer step is a hold or a time slice of another
 * process: `busy` is a fixed amount of work, and counts only a step's usual length of it. */
#define GW_LONGEST_STEP 1000ull
#define GW_USUAL_STEP 100ull

/* The same for a step that waits for memory (100 us): all work-items of a device at once can wait for more than 10 us. */
#define GW_LONGEST_MOVE 10000ull

/* What is left of `left` ticks of work when the clock went from `last` to `now`, which counts if it is not longer than `longest`. */
GW_BOTH static inline gw_u64 gw_left_within(gw_u64 left, gw_u64 last, gw_u64 now, gw_u64 longest) {
  gw_u64 step = now - last;
  if (step > longest) step = GW_USUAL_STEP;
  return step < left ? left - step : 0;
}
GW_BOTH static inline gw_u64 gw_left(gw_u64 left, gw_u64 last, gw_u64 now) {
  return gw_left_within(left, last, now, GW_LONGEST_STEP);
}

#if defined(__HIPCC_RTC__) || defined(__HIP__)
/* The bytes of one value, behind the digest of those before it. */
template <typename T>
GW_BOTH static inline gw_u64 gw_digest(gw_u64 digest, const T &value) {
  const unsigned char *bytes = (const unsigned char *)&value;
  for (gw_u32 i = 0; i < sizeof value; i++) digest = (digest ^ bytes[i]) * 0x100000001B3ull;
  return digest;
}

/* *out = the digest of a block by value, as large as an argument may be. */
extern "C" __global__ void arguments_block(gw_u64 *out, gw_block block) {
  if (blockIdx.x + threadIdx.x == 0) *out = gw_digest(GW_DIGEST, block);
}

/* *out = the digest of arguments of all sizes, without the gaps between them. */
extern "C" __global__ void arguments_mixed(gw_u64 *out, unsigned char a, unsigned short b, gw_three c, gw_u32 d,
                                           gw_u64 e, double f, gw_five g) {
  if (blockIdx.x + threadIdx.x != 0) return;
  gw_u64 digest = gw_digest(gw_digest(gw_digest(GW_DIGEST, a), b), c);
  *out = gw_digest(gw_digest(gw_digest(gw_digest(digest, d), e), f), g);
}

/* c[i] = a[i] + b[i] for i < n. */
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, gw_u32 n) {
  gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

/* dst[i] = gw_mix_step(dst[i], src[i], i, value) for i < n; dst and src may be the same buffer. */
extern "C" __global__ void mix(gw_u64 *dst, const gw_u64 *src, gw_u32 n, gw_u64 value) {
  gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dst[i] = gw_mix_step(dst[i], src[i], i, value);
}

/* The constant clock: 100 MHz (10 ns a tick) on gfx9 and later parts. Older compilers know it by its instruction only,
 * which gfx11 no longer has. */
#if defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)
static __device__ inline gw_u64 gw_constant_clock() {
#if __has_builtin(__builtin_readsteadycounter)
  return __builtin_readsteadycounter();
#else
  return __builtin_amdgcn_s_memrealtime();
#endif
}
#endif

#if defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)
static __device__ inline void gw_spin(gw_u64 duration_ns, gw_u32 rounds) {
  gw_u64 left = duration_ns / 10 / (rounds ? rounds : 1);
  gw_u64 last = gw_constant_clock();
  while (left) {
    __builtin_amdgcn_s_sleep(8);
    gw_u64 now = gw_constant_clock();
    left = gw_left(left, last, now);
    last = now;
  }
}
#else
GW_BOTH static inline void gw_spin(gw_u64, gw_u32) {}
#endif

/* Occupies its grid for `duration_ns` when alone on the device, and touches no memory. Time off the hardware does not count.
 * `rounds` is how many times the device must be filled to place the whole grid (1 if it fits at once): on a
 * real GPU each work-group spins duration_ns / rounds; gpu-sim divides by the rounds of its own model. */
extern "C" __global__ void busy(gw_u64 duration_ns, gw_u32 rounds) { gw_spin(duration_ns, rounds); }

/* The same, and then *word = value, stored by the first work-item at its end (on gpu-sim at the end of the whole grid):
 * memory that the host reaches shows when it was. */
extern "C" __global__ void busy_store(gw_u64 *word, gw_u64 value, gw_u64 duration_ns, gw_u32 rounds) {
  gw_spin(duration_ns, rounds);
  if (blockIdx.x + threadIdx.x == 0) *(volatile gw_u64 *)word = value;
}

#if defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)
/* The compiler must assume that this changes the word, so it can neither compute the word again later nor leave its register. */
#if defined(__NVPTX__)
#define GW_OPAQUE(word) asm volatile("" : "+r"(word))
#else
#define GW_OPAQUE(word) asm volatile("" : "+v"(word))
#endif
template <gw_u32 registers>
static __device__ inline void gw_keep(gw_u64 *out, gw_u64 seed, gw_u32 local_words, gw_u64 duration_ns) {
  extern __shared__ gw_u32 gw_local[];
  gw_u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  gw_u32 kept[registers];
#pragma unroll
  for (gw_u32 k = 0; k < registers; k++) {
    kept[k] = gw_kept_register(seed, i, k);
    GW_OPAQUE(kept[k]);
  }
  for (gw_u32 w = threadIdx.x; w < local_words; w += blockDim.x) gw_local[w] = gw_kept_local(seed, blockIdx.x, w);
  __syncthreads();
  gw_spin(duration_ns, 1);
  gw_u64 digest = GW_DIGEST;
#pragma unroll
  for (gw_u32 k = 0; k < registers; k++) {
    GW_OPAQUE(kept[k]);
    digest = gw_kept_digest(digest, kept[k]);
  }
  /* Words that another work-item has written. */
  for (gw_u32 w = threadIdx.x; w < local_words; w += blockDim.x)
    digest = gw_kept_digest(digest, gw_local[local_words - 1 - w]);
  out[i] = digest;
}
#else
template <gw_u32 registers>
GW_BOTH static inline void gw_keep(gw_u64 *, gw_u64, gw_u32, gw_u64) {}
#endif

/* Keeps words in registers and in the first `local_words` words of its dynamic local memory for `duration_ns`, and then stores a
 * digest of them: out[i] for work-item i, in registers first, then in local memory from the last word of the work-item on, by steps
 * of a work-group. A work-group has at most 256 work-items. */
extern "C" __global__ __launch_bounds__(256) void keep_few(gw_u64 *out, gw_u64 seed, gw_u32 local_words,
                                                           gw_u64 duration_ns) {
  gw_keep<8>(out, seed, local_words, duration_ns);
}

/* The same with as many registers as every AMD GPU has for such a work-group, with some left for the rest. */
extern "C" __global__ __launch_bounds__(256) void keep_many(gw_u64 *out, gw_u64 seed, gw_u32 local_words,
                                                            gw_u64 duration_ns) {
  gw_keep<192>(out, seed, local_words, duration_ns);
}

#else
#ifdef __cplusplus
extern "C" {
#endif
/* Not to be called: their addresses are what hipLaunchKernel takes. */
extern void arguments_block(gw_u64 *out, gw_block block);
extern void arguments_mixed(gw_u64 *out, unsigned char a, unsigned short b, gw_three c, gw_u32 d, gw_u64 e, double f,
                            gw_five g);
extern void vector_add(const float *a, const float *b, float *c, gw_u32 n);
extern void mix(gw_u64 *dst, const gw_u64 *src, gw_u32 n, gw_u64 value);
extern void busy(gw_u64 duration_ns, gw_u32 rounds);
extern void busy_store(gw_u64 *word, gw_u64 value, gw_u64 duration_ns, gw_u32 rounds);
extern void keep_few(gw_u64 *out, gw_u64 seed, gw_u32 local_words, gw_u64 duration_ns);
extern void keep_many(gw_u64 *out, gw_u64 seed, gw_u32 local_words, gw_u64 duration_ns);
#ifdef __cplusplus
}
#endif
#endif

/* What `busy_traffic` moves at a time: two words, which are read and written. */
#define GW_VECTOR_BYTES 16ull
/* Work-groups add what they have moved to one of so many counters, which lie in lines of their own: groups that end together do not
 * wait for each other. */
#define GW_COUNTERS 64u
#define GW_COUNTER_WORDS 16u
/* The most vectors, from the first on, that a host checks after a launch. gpu-sim and cuda-cpu write no others. */
#define GW_CHECKED 256ull

#if defined(__HIP_DEVICE_COMPILE__) || defined(__HIPCC_RTC__)
typedef gw_u64 gw_vector __attribute__((ext_vector_type(2)));

/* Reads N vectors and then writes them. A write needs what was read, so no compiler leaves the read out. The first word becomes
 * `value` whoever writes last: work-groups may share vectors. */
template <gw_u32 N>
static __device__ inline void gw_move(gw_vector *memory, gw_u64 mask, gw_u64 at, gw_u64 stride, gw_u64 value) {
  gw_vector seen[N];
#pragma unroll
  for (gw_u32 i = 0; i < N; i++) seen[i] = memory[(at + i * stride) & mask];
#pragma unroll
  for (gw_u32 i = 0; i < N; i++) {
    gw_vector made = {value, seen[i].x + seen[i].y};
    memory[(at + i * stride) & mask] = made;
  }
}

static __device__ inline void gw_spin_and_move(gw_vector *memory, gw_u64 *counters, gw_u64 mask, gw_u64 first, gw_u64 vectors,
                                               gw_u64 value, gw_u64 duration_ns, gw_u32 rounds, gw_u32 depth) {
  gw_u64 groups = (gw_u64)gridDim.x * gridDim.y * gridDim.z;
  gw_u64 group = blockIdx.x + (gw_u64)gridDim.x * (blockIdx.y + (gw_u64)gridDim.y * blockIdx.z);
  gw_u32 threads = blockDim.x * blockDim.y * blockDim.z;
  gw_u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  /* Where there is enough for every work-item, all groups together go through the memory from its beginning: groups that are far apart
   * and go at one pace would meet in the same memory channels. Otherwise each group has a part of its own, so that all have some. */
  gw_u64 each = vectors / groups, more = vectors - each * groups;
  bool together = each >= threads;
  gw_u64 stride = together ? groups * threads : threads;
  gw_u64 begin = together ? group * threads : each * group + (group < more ? group : more);
  gw_u64 end = together ? vectors : begin + each + (group < more ? 1 : 0);
  gw_u64 total = duration_ns / 10 / (rounds ? rounds : 1), left = total;
  float per_tick = total ? (float)(end - begin) / (float)total : 0.0f;
  gw_u64 next = begin + thread, ended = begin, moved = 0;
  gw_u64 last = gw_constant_clock();
  /* Both the time and the traffic must be done. */
  while (left || next < end) {
    /* The traffic keeps ahead of the time by one move, so that none is left when the time is over. */
    gw_u64 due = left ? begin + stride * depth + (gw_u64)(per_tick * (float)(total - left)) : end;
    gw_u32 moves = 0;
    if (next >= end || next >= due) {
      __builtin_amdgcn_s_sleep(8);
    } else if (depth >= 4 && next + 3 * stride < end) {
      gw_move<4>(memory, mask, first + next, stride, value);
      moves = 4;
    } else {
      gw_move<1>(memory, mask, first + next, stride, value);
      moves = 1;
    }
    if (thread == 0) {
      for (gw_u32 i = 0; i < moves; i++) {
        ended = next + i * stride;
        moved += end - ended < threads ? end - ended : threads;
      }
    }
    next += moves * stride;
    gw_u64 now = gw_constant_clock();
    left = gw_left_within(left, last, now, GW_LONGEST_MOVE);
    last = now;
  }
  /* The first work-item counts for its group, if the last vector that it wrote is there. */
  if (moved) {
    gw_u64 there = *(volatile gw_u64 *)&memory[(first + ended) & mask];
    gw_u64 *counter = counters + (group % GW_COUNTERS) * GW_COUNTER_WORDS;
    if (there == value) __atomic_fetch_add(counter, moved, __ATOMIC_RELAXED);
  }
}
#elif defined(__HIP__)
typedef gw_u64 gw_vector __attribute__((ext_vector_type(2)));
GW_BOTH static inline void gw_spin_and_move(gw_vector *, gw_u64 *, gw_u64, gw_u64, gw_u64, gw_u64, gw_u64, gw_u32, gw_u32) {}
#endif

#if defined(__HIPCC_RTC__) || defined(__HIP__)
/* Occupies its grid as `busy` does, and meanwhile reads and writes `vectors` vectors of `memory`, evenly over its time. They begin at
 * number `first` and go round at number `mask`, which is a power of two less one. It ends when it has run for `duration_ns` and all
 * vectors are moved. Work-items move `depth` vectors at a time (1 or 4) when they can.
 *
 * For the host's check: the first word of each vector becomes `value`, and the sum of the GW_COUNTERS counters grows by `vectors`. */
extern "C" __global__ void busy_traffic(gw_u64 *memory, gw_u64 *counters, gw_u64 mask, gw_u64 first, gw_u64 vectors, gw_u64 value,
                                        gw_u64 duration_ns, gw_u32 rounds, gw_u32 depth) {
  gw_spin_and_move((gw_vector *)memory, counters, mask, first, vectors, value, duration_ns, rounds, depth);
}
#else
#ifdef __cplusplus
extern "C" {
#endif
extern void busy_traffic(gw_u64 *memory, gw_u64 *counters, gw_u64 mask, gw_u64 first, gw_u64 vectors, gw_u64 value,
                         gw_u64 duration_ns, gw_u32 rounds, gw_u32 depth);
#ifdef __cplusplus
}
#endif
#endif

#endif
