// run: --vram 4
/* Memory that hipFreeAsync gives back behind running work, and every function that may want it: what the program gets or is
 * refused does not depend on whether the free has been launched yet. */
#include "check.h"

static const size_t PIECE = 3 * GIB, ROW = 1 << 16;

struct Way {
  const char *name;
  hipError_t (*take)(void **place);
  hipError_t (*give)(void *place);
};

static hipError_t free_plain(void *place) { return hipFree(place); }

static hipError_t pitched(void **place) {
  hipPitchedPtr p = {};
  hipError_t code = hipMalloc3D(&p, make_hipExtent(ROW, PIECE / ROW, 1));
  *place = p.ptr;
  return code;
}

static hipError_t array_of_two(void **place) {
  hipChannelFormatDesc desc = hipCreateChannelDesc(32, 0, 0, 0, hipChannelFormatKindUnsigned);
  return hipMallocArray((hipArray **)place, &desc, 1 << 14, PIECE / 4 >> 14, 0);
}

static const Way WAYS[] = {
    {"hipMalloc", [](void **p) { return hipMalloc(p, PIECE); }, free_plain},
    {"hipExtMallocWithFlags", [](void **p) { return hipExtMallocWithFlags(p, PIECE, 0); }, free_plain},
    {"hipMallocPitch",
     [](void **p) {
       size_t pitch = 0;
       return hipMallocPitch(p, &pitch, ROW, PIECE / ROW);
     },
     free_plain},
    {"hipMemAllocPitch",
     [](void **p) {
       size_t pitch = 0;
       return hipMemAllocPitch((hipDeviceptr_t *)p, &pitch, ROW, PIECE / ROW, 4);
     },
     free_plain},
    {"hipMalloc3D", pitched, free_plain},
    {"hipMallocArray", array_of_two, [](void *p) { return hipFreeArray((hipArray *)p); }},
};

int main() {
  hipStream_t stream;
  hipMemPool_t usual;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipDeviceGetDefaultMemPool(&usual, 0));
  Words want = pattern_words(1024, 1);
  gw_u64 *words = device_words(want);
  launch_mix(stream, words, words, 1024, 0);
  cpu_mix(want, want, 0);
  CHECK(hipStreamSynchronize(stream));
  gw_u64 seed = 1;
  for (const Way &way : WAYS) {
    for (bool pool : {false, true}) {
      void *block = nullptr, *place = nullptr;
      CHECK(pool ? hipMallocAsync(&block, PIECE, stream) : hipMalloc(&block, PIECE));
      EXPECT(hipMalloc(&place, PIECE), hipErrorOutOfMemory);
      launch_busy(stream, 2 * MS);
      launch_mix(stream, words, words, 1024, seed);
      cpu_mix(want, want, seed++);
      CHECK(hipFreeAsync(block, stream));
      hipError_t code = way.take(&place);
      show((std::string(way.name) + (pool ? ", of a pool" : ", of hipMalloc")).c_str(), code);
      if (code == hipSuccess) CHECK(way.give(place));
      CHECK(hipStreamSynchronize(stream));
      place = nullptr;
      code = way.take(&place);
      show("  and when the stream is idle", code);
      if (code == hipSuccess) CHECK(way.give(place));
      (void)hipGetLastError();
      CHECK(hipMemPoolTrimTo(usual, 0));
    }
  }
  SAME_WORDS(words, want, "beside all that");
  return passed();
}
