// run: args 5 | every-mode
/* Random commands (mix, fills, copies, busy kernels) on several streams and buffers, ordered only where they
 * touch the same buffer, by events; the CPU does the same one after the other. Argument: the seed. */
#include "check.h"

static const int STREAMS = 6, BUFFERS = 5;
static const size_t N = 1200;

struct Buffer {
  gw_u64 *device;
  Words model;
  int last_stream;
  hipEvent_t last; /* recorded after the last command that touched it */
};

static hipStream_t streams[STREAMS];
static Buffer buffers[BUFFERS];

/* The stream may go on with this buffer: after everything that touched it on another stream. */
static void order(int s, Buffer &b) {
  if (b.last_stream >= 0 && b.last_stream != s) CHECK(hipStreamWaitEvent(streams[s], b.last, 0));
}

static void touched(int s, Buffer &b) {
  b.last_stream = s;
  CHECK(hipEventRecord(b.last, streams[s]));
}

static void command(Random &random, gw_u64 value) {
  int s = (int)random.below(STREAMS);
  Buffer &dst = buffers[random.below(BUFFERS)], &src = buffers[random.below(BUFFERS)];
  const size_t bytes = N * sizeof(gw_u64);
  order(s, dst);
  order(s, src);
  switch (random.below(8)) {
    case 0: {
      size_t n = 1 + random.below(bytes);
      int byte = (int)(value & 0xFF);
      CHECK(hipMemsetAsync(dst.device, byte, n, streams[s]));
      memset(dst.model.data(), byte, n);
      break;
    }
    case 1:
      if (&dst != &src) {
        CHECK(hipMemcpyAsync(dst.device, src.device, bytes, hipMemcpyDeviceToDevice, streams[s]));
        dst.model = src.model;
      }
      break;
    case 2: {
      Words fresh = pattern_words(1 + random.below(N), value);
      CHECK(hipMemcpyAsync(dst.device, fresh.data(), fresh.size() * sizeof(gw_u64), hipMemcpyHostToDevice,
                           streams[s]));
      memcpy(dst.model.data(), fresh.data(), fresh.size() * sizeof(gw_u64));
      break;
    }
    case 3:
      launch_busy(streams[s], random.below(1000000));
      [[fallthrough]];
    default:
      launch_mix(streams[s], dst.device, src.device, N, value);
      if (&dst == &src) {
        cpu_mix(dst.model, dst.model, value);
      } else {
        cpu_mix(dst.model, src.model, value);
      }
  }
  touched(s, dst);
  if (&dst != &src) touched(s, src);
}

int main(int argc, char **argv) {
  const gw_u64 seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
  for (int s = 0; s < STREAMS; s++) {
    CHECK(hipStreamCreateWithFlags(&streams[s], s % 2 ? hipStreamNonBlocking : hipStreamDefault));
  }
  for (int b = 0; b < BUFFERS; b++) {
    buffers[b].model = pattern_words(N, seed + (gw_u64)b);
    buffers[b].device = device_words(buffers[b].model);
    buffers[b].last_stream = -1;
    CHECK(hipEventCreateWithFlags(&buffers[b].last, b % 2 ? hipEventDisableTiming : hipEventDefault));
  }
  Random random(seed);
  for (int round = 0; round < 6; round++) {
    for (int i = 0; i < 150; i++) command(random, random.next());
    for (auto &b : buffers) {
      if (b.last_stream >= 0) CHECK(hipEventSynchronize(b.last));
      SAME_WORDS(b.device, b.model, "random commands");
    }
    Digest digest;
    for (auto &b : buffers) digest.add(b.model);
    printf("round %d %016llx\n", round, digest.value);
  }
  CHECK(hipDeviceSynchronize());
  for (auto &b : buffers) {
    CHECK(hipFree(b.device));
    CHECK(hipEventDestroy(b.last));
  }
  for (auto stream : streams) CHECK(hipStreamDestroy(stream));
  return passed();
}
