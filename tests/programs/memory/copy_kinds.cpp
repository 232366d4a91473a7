// run: plain
/* hipMemcpyAsync between all kinds of memory: pageable, pinned, registered, managed, device; with the kind named and with
 * hipMemcpyDefault, behind a kernel and in front of one. */
#include "check.h"

static const size_t N = 3000, BYTES = N * sizeof(gw_u64);

struct Place {
  const char *name;
  gw_u64 *words;
  bool on_device, kernels;
};

static Place place(int kind) {
  void *p = nullptr;
  switch (kind) {
    case 0:
      return {"pageable", (gw_u64 *)malloc(BYTES), false, false};
    case 1:
      CHECK(hipHostMalloc(&p, BYTES, 0));
      return {"pinned", (gw_u64 *)p, false, true};
    case 2:
      p = aligned_alloc(4096, (BYTES + 4095) / 4096 * 4096);
      CHECK(hipHostRegister(p, BYTES, 0));
      return {"registered", (gw_u64 *)p, false, false};
    case 3:
      CHECK(hipMallocManaged(&p, BYTES, hipMemAttachGlobal));
      return {"managed", (gw_u64 *)p, false, true};
    default:
      return {"device", device_alloc<gw_u64>(N), true, true};
  }
}

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  for (int from = 0; from < 5; from++) {
    for (int to = 0; to < 5; to++) {
      Place source = place(from), target = place(to);
      for (bool by_default : {false, true}) {
        Words words = pattern_words(N, (gw_u64)(from * 5 + to)), back(N);
        if (source.on_device) {
          CHECK(hipMemcpy(source.words, words.data(), BYTES, hipMemcpyHostToDevice));
        } else {
          memcpy(source.words, words.data(), BYTES);
        }
        if (source.kernels) {
          launch_busy(stream, MS / 4);
          launch_mix(stream, source.words, source.words, N, 1);
          cpu_mix(words, words, 1);
        }
        hipMemcpyKind kind = by_default         ? hipMemcpyDefault
                             : source.on_device ? (target.on_device ? hipMemcpyDeviceToDevice : hipMemcpyDeviceToHost)
                             : target.on_device ? hipMemcpyHostToDevice
                                                : hipMemcpyHostToHost;
        CHECK(hipMemcpyAsync(target.words, source.words, BYTES, kind, stream));
        if (target.kernels) {
          launch_mix(stream, target.words, target.words, N, 2);
          cpu_mix(words, words, 2);
        }
        CHECK(hipStreamSynchronize(stream));
        if (target.on_device) {
          SAME_WORDS(target.words, words, std::string(source.name) + " to device");
        } else {
          SAME(target.words, words.data(), BYTES, std::string(source.name) + " to " + target.name);
        }
        printf("%s to %s%s %016llx\n", source.name, target.name, by_default ? " by default" : "", digest_of(words));
      }
    }
  }
  return passed();
}
