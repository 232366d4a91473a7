/* What every test program shares: loud checks, patterns, digests and the project's kernels.
 * A program prints only what is the same in every run (no times, addresses, pids), so that a native and a
 * shimmed run can be compared byte for byte, and exits 0 when everything was right. */
#ifndef GIVEWAY_TESTS_CHECK_H
#define GIVEWAY_TESTS_CHECK_H

#include <hip/hip_runtime.h>

#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "giveway_kernels.h"

/* Each line goes out when it is printed, into a pipe as well: the harness and parents wait for lines. */
__attribute__((constructor)) static void print_line_by_line() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
}

/* Ends the process at once: destructors of a runtime in an unknown state could hang. */
[[noreturn]] static inline void fail_at(const char *file, int line, const char *what, const char *format,
                                        ...) {
  fflush(stdout);
  fprintf(stderr, "%s:%d: %s: ", file, line, what);
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  fflush(stderr);
  _exit(1);
}

static inline void expect_at(hipError_t got, hipError_t want, const char *file, int line, const char *what) {
  if (got == want) return;
  fail_at(file, line, what, "%s (%d), expected %s", hipGetErrorName(got), (int)got, hipGetErrorName(want));
}

/* The runtime's file, as a program for this HIP asks for it. */
#define TEXT_OF(number) #number
#define RUNTIME_NAME(major) "libamdhip64.so." TEXT_OF(major)
#define RUNTIME RUNTIME_NAME(HIP_VERSION_MAJOR)

#define FAIL(...) fail_at(__FILE_NAME__, __LINE__, "failed", __VA_ARGS__)
/* The HIP call succeeds, or the program ends with file, line, call and error name. */
#define CHECK(call) expect_at((call), hipSuccess, __FILE_NAME__, __LINE__, #call)
/* The HIP call returns exactly this error. */
#define EXPECT(call, error) expect_at((call), (error), __FILE_NAME__, __LINE__, #call)
/* The condition holds, or the program ends with it and the printf-like reason. */
#define REQUIRE(condition, ...)                                                  \
  do {                                                                           \
    if (!(condition)) fail_at(__FILE_NAME__, __LINE__, #condition, __VA_ARGS__); \
  } while (0)

typedef std::vector<unsigned char> Bytes;
typedef std::vector<gw_u64> Words;

static const size_t KIB = 1024;
static const size_t MIB = 1024 * KIB;
static const size_t GIB = 1024 * MIB;
static const gw_u64 MS = 1000000;

/* Host time, for the bounds that a program checks; never printed. */
static inline gw_u64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (gw_u64)t.tv_sec * 1000000000ull + (gw_u64)t.tv_nsec;
}

/* A small generator with the same numbers everywhere (splitmix64). */
struct Random {
  gw_u64 state;
  explicit Random(gw_u64 seed) : state(seed) {}
  gw_u64 next() {
    gw_u64 z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return (size_t)(next() % n); }
};

/* Bytes that differ for every seed and position. */
static inline void fill_pattern(void *to, size_t n, gw_u64 seed) {
  Random random(seed);
  unsigned char *p = (unsigned char *)to;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    gw_u64 word = random.next();
    memcpy(p + i, &word, 8);
  }
  gw_u64 word = random.next();
  memcpy(p + i, &word, n - i);
}

static inline Bytes pattern(size_t n, gw_u64 seed) {
  Bytes bytes(n);
  fill_pattern(bytes.data(), n, seed);
  return bytes;
}

static inline Words pattern_words(size_t n, gw_u64 seed) {
  Words words(n);
  fill_pattern(words.data(), n * sizeof(gw_u64), seed);
  return words;
}

/* A running 64-bit digest over memory; order matters. */
struct Digest {
  gw_u64 value = 0xCBF29CE484222325ull;
  void add_word(gw_u64 word) { value = ((value ^ word) * 0x100000001B3ull) ^ (value >> 29); }
  void add(const void *data, size_t n) {
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      gw_u64 word;
      memcpy(&word, p + i, 8);
      add_word(word);
    }
    gw_u64 word = 0;
    memcpy(&word, p + i, n - i);
    add_word(word);
    add_word(n);
  }
  void add(const Bytes &bytes) { add(bytes.data(), bytes.size()); }
  void add(const Words &words) { add(words.data(), words.size() * sizeof(gw_u64)); }
};

static inline gw_u64 digest_of(const Words &words) {
  Digest digest;
  digest.add(words);
  return digest.value;
}

/* Both ranges are equal, or the first difference is named. */
static inline void same_at(const char *file, int line, const void *got, const void *want, size_t n,
                           const std::string &what) {
  if (memcmp(got, want, n) == 0) return;
  const unsigned char *g = (const unsigned char *)got, *w = (const unsigned char *)want;
  size_t first = 0, count = 0, last = 0;
  for (size_t i = n; i-- > 0;) {
    if (g[i] == w[i]) continue;
    first = i;
    if (count++ == 0) last = i;
  }
  fail_at(file, line, what.c_str(), "%zu of %zu bytes differ, from %zu (0x%02x, expected 0x%02x) to %zu",
          count, n, first, g[first], w[first], last);
}
#define SAME(got, want, n, what) same_at(__FILE_NAME__, __LINE__, (got), (want), (n), (what))

template <typename T>
static inline T *device_alloc(size_t count) {
  void *p = nullptr;
  CHECK(hipMalloc(&p, count * sizeof(T)));
  return (T *)p;
}

static inline gw_u64 *device_words(const Words &words) {
  gw_u64 *p = device_alloc<gw_u64>(words.size());
  CHECK(hipMemcpy(p, words.data(), words.size() * sizeof(gw_u64), hipMemcpyHostToDevice));
  return p;
}

static inline Words read_words(const gw_u64 *from, size_t count) {
  Words words(count);
  CHECK(hipMemcpy(words.data(), from, count * sizeof(gw_u64), hipMemcpyDeviceToHost));
  return words;
}

/* Device words equal the expected ones. */
#define SAME_WORDS(device, want, what)                                              \
  do {                                                                              \
    Words got_words_ = read_words((device), (want).size());                         \
    SAME(got_words_.data(), (want).data(), (want).size() * sizeof(gw_u64), (what)); \
  } while (0)

/* The CPU's version of the `mix` kernel. */
static inline void cpu_mix(Words &dst, const Words &src, gw_u64 value) {
  for (size_t i = 0; i < dst.size(); i++) dst[i] = gw_mix_step(dst[i], src[i], (gw_u32)i, value);
}

/* By hipLaunchKernel, whose own result is checked: the last error may be an older one that nobody fetched. */
static inline void launch_mix(hipStream_t stream, gw_u64 *dst, const gw_u64 *src, size_t n, gw_u64 value) {
  gw_u32 count = (gw_u32)n;
  void *arguments[] = {&dst, &src, &count, &value};
  CHECK(
      hipLaunchKernel((const void *)mix, dim3((unsigned)((n + 255) / 256)), dim3(256), arguments, 0, stream));
}

static inline void launch_busy(hipStream_t stream, gw_u64 duration_ns) {
  gw_u32 rounds = 1;
  void *arguments[] = {&duration_ns, &rounds};
  CHECK(hipLaunchKernel((const void *)busy, dim3(1), dim3(64), arguments, 0, stream));
}

/* Holds a stream until the host says so, by a value that the stream waits for: what lies behind it is surely not
 * complete before. Streams share four hardware queues: not for programs with many of them. */
struct Gate {
  volatile uint64_t *flag;
  Gate() {
    void *memory = nullptr;
    CHECK(hipExtMallocWithFlags(&memory, 8, hipMallocSignalMemory));
    flag = (volatile uint64_t *)memory;
    *flag = 0;
  }
  void close(hipStream_t stream) {
    *flag = 0;
    CHECK(hipStreamWaitValue64(stream, (void *)flag, 1, hipStreamWaitValueEq, ~0ull));
  }
  void open() { *flag = 1; }
};

/* Prints a result and the last-error state around it. */
static inline void show(const char *what, hipError_t error) {
  hipError_t peeked = hipPeekAtLastError(), last = hipGetLastError(), after = hipGetLastError();
  printf("%s: %s; last error %s, %s, then %s\n", what, hipGetErrorName(error), hipGetErrorName(peeked),
         hipGetErrorName(last), hipGetErrorName(after));
}

static inline bool has_flag(int argc, char **argv, const char *flag) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], flag) == 0) return true;
  }
  return false;
}

/* Whether another thread of this process is doing something. */
static inline bool others_run() {
  DIR *tasks = opendir("/proc/self/task");
  bool any = false;
  while (struct dirent *entry = tasks ? readdir(tasks) : nullptr) {
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
    FILE *file = entry->d_name[0] == '.' || atoi(entry->d_name) == getpid() ? nullptr : fopen(path, "r");
    if (!file) continue;
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    const char *name_end = strrchr(text, ')');
    any |= name_end && name_end[1] && name_end[2] != 'S';
  }
  if (tasks) closedir(tasks);
  return any;
}

/* Looks for this long (nanoseconds) whether it happens, once at least: what must not happen can only be waited for.
 * False: it has happened. */
template <typename Happens>
static inline bool never_in(gw_u64 duration, Happens happens) {
  for (const gw_u64 start = now_ns();; usleep(200)) {
    if (happens()) return false;
    if (now_ns() - start >= duration) return true;
  }
}

/* Waits until it happens, however long that takes: the harness ends a program that waits for ever. */
template <typename Happens>
static inline void until(Happens happens) {
  while (never_in(UINT64_MAX, happens)) {
  }
}

/* False: the stream is not busy all this time. */
static inline bool is_busy_for(hipStream_t stream, gw_u64 duration) {
  return never_in(duration, [&] {
    const hipError_t state = hipStreamQuery(stream);
    if (state != hipSuccess) EXPECT(state, hipErrorNotReady);
    return state == hipSuccess;
  });
}

static inline void stays_busy(hipStream_t stream, gw_u64 duration) {
  REQUIRE(is_busy_for(stream, duration), "the stream is not busy");
}

/* To be called before a program's end. When a stream's work is done, a thread of the runtime's still frees what the
 * commands held; from 6 on exit() frees the same at the same time, and of that a process now and then dies ("double
 * free"), with or without the library. So the runtime's threads are given the time to go to sleep. */
static inline void settle() {
#if HIP_VERSION_MAJOR >= 6
  for (int quiet = 0, polls = 0; quiet < 20 && polls < 2000; polls++) {
    quiet = others_run() ? 0 : quiet + 1;
    usleep(200);
  }
#endif
}

/* The last line of every program that was right. */
static inline int passed() {
  settle();
  printf("ok\n");
  fflush(stdout);
  return 0;
}

#endif
