// run: plain
/* What HIP refuses of asynchronous copies and fills by their arguments, each given wrong in turn (docs/refusals.md). What it takes
 * all the same, or has nothing to do for, is here too. Left out: handles of streams that are gone, which HIP follows; sizes whose
 * products overflow, which HIP does not look for; and what 5.2.3 dies of: rows that begin in the middle of the pitch and end
 * behind it, memory types that there are not, null for a description. */
#include "refused.h"

__device__ gw_u64 table[512];

static hipDeviceptr_t at(void *address) { return (hipDeviceptr_t)address; }

static const size_t MORE = 1 << 20, SIZE = 1 << 16;

static void linear(char *d, char *h, char *p) {
  char *big = device_alloc<char>(2 * MORE);
  ROW(hipMemcpyAsync(big, h, MORE, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(h, big, MORE, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyHtoDAsync(at(big), h, MORE, s));
  ROW(hipMemcpy2DAsync(big, 64, h, 64, 64, 4096, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(h, 64, big, 64, 64, 4096, hipMemcpyDeviceToHost, s));
  CHECK(hipFree(big));
  ROW(hipMemcpyAsync(nullptr, h, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, nullptr, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(nullptr, nullptr, 0, hipMemcpyHostToDevice, s));
  TURN(hipMemcpyAsync(d, h, 64, (hipMemcpyKind)77, s));
  TURN(hipMemcpyAsync(d, h, 64, (hipMemcpyKind)-1, s));
  ROW(hipMemcpyAsync(d, h, MORE, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(h, d, MORE, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyAsync(d, h, ~(size_t)0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d + SIZE - 6, h, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, d + SIZE - 6, 64, hipMemcpyDeviceToDevice, s));
  ROW(hipMemcpyAsync(d, h + SIZE - 6, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyAsync(d, p, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyHtoDAsync(at(nullptr), h, 64, s));
  ROW(hipMemcpyHtoDAsync(at(d), nullptr, 64, s));
  ROW(hipMemcpyHtoDAsync(at(d), h, MORE, s));
  ROW(hipMemcpyHtoDAsync(at(d), h, 0, s));
  ROW(hipMemcpyDtoHAsync(nullptr, at(d), 64, s));
  ROW(hipMemcpyDtoHAsync(h, at(nullptr), 64, s));
  ROW(hipMemcpyDtoHAsync(h, at(d), MORE, s));
  ROW(hipMemcpyDtoHAsync(h, at(d), 0, s));
  ROW(hipMemcpyDtoDAsync(at(nullptr), at(d), 64, s));
  ROW(hipMemcpyDtoDAsync(at(d), at(nullptr), 64, s));
  ROW(hipMemcpyDtoDAsync(at(d), at(d + SIZE - 6), 64, s));
  ROW(hipMemcpyDtoDAsync(at(d), at(d), 0, s));
  ROW(hipMemcpyWithStream(nullptr, h, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyWithStream(d, nullptr, 64, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyWithStream(d, h, MORE, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyWithStream(h, d, MORE, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyWithStream(d, d + SIZE - 6, 64, hipMemcpyDeviceToDevice, s));
  TURN(hipMemcpyWithStream(d, h, 64, (hipMemcpyKind)77, s));
  ROW(hipMemcpyWithStream(d, h, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyPeerAsync(nullptr, 0, d, 0, 64, s));
  ROW(hipMemcpyPeerAsync(d, 0, nullptr, 0, 64, s));
  ROW(hipMemcpyPeerAsync(d, 0, h, 9, 64, s));
  ROW(hipMemcpyPeerAsync(d, 9, h, 0, 64, s));
  ROW(hipMemcpyPeerAsync(d, -1, h, 0, 64, s));
  ROW(hipMemcpyPeerAsync(d, 0, d, 0, MORE, s));
  ROW(hipMemcpyPeerAsync(d, 0, d, 0, 0, s));
}

static void rows(char *d, char *h) {
  ROW(hipMemcpy2DAsync(nullptr, 64, h, 64, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, nullptr, 64, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 32, h, 64, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 32, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 0, h, 64, 64, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 64, 64, 4096, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(h, 64, d, 64, 64, 4096, hipMemcpyDeviceToHost, s));
#if HIP_VERSION_MAJOR < 7 /* 7.2.4 takes them, and dies of them. */
  ROW(hipMemcpy2DAsync(d + SIZE - 6, 64, h, 64, 64, 1, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h + SIZE - 6, 64, 64, 1, hipMemcpyHostToDevice, s));
#endif
  ROW(hipMemcpy2DAsync(d, 64, h, 64, 0, 4, hipMemcpyHostToDevice, s));
  ROW(hipMemcpy2DAsync(d, 64, h, 64, 64, 0, hipMemcpyHostToDevice, s));
  TURN(hipMemcpy2DAsync(d, 64, h, 64, 64, 4, (hipMemcpyKind)77, s));

  ROW(hipMemcpy3DAsync(nullptr, s));
  const hipPitchedPtr narrow = make_hipPitchedPtr(d, 32, 64, 4), host = make_hipPitchedPtr(h, 64, 64, 4);
  const hipPitchedPtr good = make_hipPitchedPtr(d, 64, 64, 4);
  hipMemcpy3DParms none{}, fine{};
  fine.srcPtr = host, fine.dstPtr = good;
  fine.extent = make_hipExtent(64, 4, 1), fine.kind = hipMemcpyHostToDevice;
  auto slices = [&](const char *what, hipMemcpy3DParms params) { ROW_OF(what, hipMemcpy3DAsync(&params, s)); };
  auto but = [&](auto change) {
    hipMemcpy3DParms params = fine;
    change(params);
    return params;
  };
  slices("3D, nothing said", none);
  slices("3D, rows longer than the destination's pitch", but([&](auto &of) { of.dstPtr = narrow; }));
  slices("3D, rows longer than the source's pitch", but([&](auto &of) { of.srcPtr = make_hipPitchedPtr(h, 32, 64, 4); }));
  slices("3D, beyond both ends", but([&](auto &of) { of.extent.depth = 4096; }));
  slices("3D, no width", but([&](auto &of) { of.extent.width = 0; }));
  slices("3D, no height", but([&](auto &of) { of.extent.height = 0; }));
  slices("3D, no depth", but([&](auto &of) { of.extent.depth = 0; }));
  const hipMemcpy3DParms turned = but([&](auto &of) { of.kind = (hipMemcpyKind)77; });
  TURN(hipMemcpy3DAsync(&turned, s));
  slices("3D, to nowhere", but([&](auto &of) { of.dstPtr.ptr = nullptr; }));
  slices("3D, from nowhere", but([&](auto &of) { of.srcPtr.ptr = nullptr; }));
  slices("3D, from behind the end", but([&](auto &of) { of.srcPos = make_hipPos(0, 0, 4096); }));
  slices("3D, to behind the end", but([&](auto &of) { of.dstPos = make_hipPos(0, 0, 4096); }));

  hip_Memcpy2D zero{}, row{};
  row.srcMemoryType = hipMemoryTypeHost, row.srcHost = h, row.srcPitch = 64;
  row.dstMemoryType = hipMemoryTypeDevice, row.dstDevice = at(d), row.dstPitch = 64;
  row.WidthInBytes = 64, row.Height = 4;
  auto described = [&](const char *what, hip_Memcpy2D params) { ROW_OF(what, hipMemcpyParam2DAsync(&params, s)); };
  auto except = [&](auto change) {
    hip_Memcpy2D params = row;
    change(params);
    return params;
  };
  described("described, nothing said", zero);
  described("described, no width", except([](auto &of) { of.WidthInBytes = 0; }));
  described("described, no height", except([](auto &of) { of.Height = 0; }));
  described("described, rows longer than the destination's pitch", except([](auto &of) { of.dstPitch = 32; }));
  described("described, rows longer than the source's pitch", except([](auto &of) { of.srcPitch = 32; }));
  described("described, to nowhere", except([](auto &of) { of.dstDevice = at(nullptr); }));
  described("described, from nowhere", except([](auto &of) { of.srcHost = nullptr; }));
  described("described, beyond both ends", except([](auto &of) { of.Height = 4096; }));
}

static void symbols(char *d, char *h) {
  const void *symbol = HIP_SYMBOL(table), *nowhere = nullptr;
  const size_t whole = sizeof table;
  ROW(hipMemcpyToSymbolAsync(nowhere, h, 4, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyToSymbolAsync(h, h, 4, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyToSymbolAsync(symbol, nullptr, 4, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyToSymbolAsync(symbol, h, whole + 1, 0, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyToSymbolAsync(symbol, h, 4, whole, hipMemcpyHostToDevice, s));
  ROW(hipMemcpyToSymbolAsync(symbol, h, 0, 0, hipMemcpyHostToDevice, s));
  TURN(hipMemcpyToSymbolAsync(symbol, h, 4, 0, hipMemcpyDeviceToHost, s));
  TURN(hipMemcpyToSymbolAsync(symbol, h, 4, 0, (hipMemcpyKind)77, s));
  ROW(hipMemcpyFromSymbolAsync(h, nowhere, 4, 0, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyFromSymbolAsync(h, h, 4, 0, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyFromSymbolAsync(nullptr, symbol, 4, 0, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyFromSymbolAsync(h, symbol, whole + 1, 0, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyFromSymbolAsync(h, symbol, 4, whole, hipMemcpyDeviceToHost, s));
  ROW(hipMemcpyFromSymbolAsync(h, symbol, 0, 0, hipMemcpyDeviceToHost, s));
  TURN(hipMemcpyFromSymbolAsync(h, symbol, 4, 0, hipMemcpyHostToDevice, s));
  TURN(hipMemcpyFromSymbolAsync(h, symbol, 4, 0, (hipMemcpyKind)77, s));
#if HIP_VERSION_MAJOR >= 7
  /* Only the direction that the call says, and within a device, is one. */
  ROW(hipMemcpyToSymbolAsync(symbol, h, 4, 0, hipMemcpyDefault, s));
  ROW(hipMemcpyToSymbolAsync(symbol, h, 4, 0, hipMemcpyHostToHost, s));
  ROW(hipMemcpyFromSymbolAsync(h, symbol, 4, 0, hipMemcpyDefault, s));
  ROW(hipMemcpyFromSymbolAsync(h, symbol, 4, 0, hipMemcpyHostToHost, s));
#endif
  ROW(hipMemcpyFromSymbolAsync(d + SIZE - 6, symbol, 64, 0, hipMemcpyDeviceToDevice, s));
}

static void fills(char *d, char *p) {
  ROW(hipMemsetAsync(nullptr, 1, 64, s));
  ROW(hipMemsetAsync(nullptr, 1, 0, s));
  ROW(hipMemsetAsync(d, 1, MORE, s));
  ROW(hipMemsetAsync(d, 1, ~(size_t)0, s));
  TURN(hipMemsetAsync(d + SIZE - 6, 1, 64, s));
  ROW(hipMemsetAsync(p, 1, 64, s));
  ROW(hipMemsetAsync(d, 1, 0, s));
  ROW(hipMemsetD8Async(at(nullptr), 1, 64, s));
  ROW(hipMemsetD8Async(at(d), 1, MORE, s));
  ROW(hipMemsetD8Async(at(d), 1, 0, s));
  ROW(hipMemsetD16Async(at(nullptr), 1, 64, s));
  ROW(hipMemsetD16Async(at(d), 1, SIZE / 2 + 1, s));
  ROW(hipMemsetD16Async(at(d), 1, 0, s));
  ROW(hipMemsetD16Async(at(p), 1, 64, s));
  ROW(hipMemsetD32Async(at(nullptr), 1, 64, s));
  ROW(hipMemsetD32Async(at(d), 1, SIZE / 4 + 1, s));
  ROW(hipMemsetD32Async(at(d), 1, 0, s));
  ROW(hipMemsetD32Async(at(p), 1, 64, s));
  ROW(hipMemset2DAsync(nullptr, 64, 1, 64, 4, s));
  ROW(hipMemset2DAsync(d, 32, 1, 64, 4, s));
  ROW(hipMemset2DAsync(d, 1024, 1, 64, 4096, s));
  ROW(hipMemset2DAsync(d, 64, 1, 0, 4, s));
  ROW(hipMemset2DAsync(d, 64, 1, 64, 0, s));
  ROW(hipMemset2DAsync(p, 64, 1, 64, 4, s));
  TURN(hipMemset2DAsync(d + SIZE - 6, 64, 1, 64, 1, s));
  const hipPitchedPtr narrow = make_hipPitchedPtr(d, 32, 64, 4), good = make_hipPitchedPtr(d, 64, 64, 4);
  ROW(hipMemset3DAsync(narrow, 1, make_hipExtent(64, 4, 4), s));
  ROW(hipMemset3DAsync(good, 1, make_hipExtent(64, 4, 4096), s));
  ROW(hipMemset3DAsync(good, 1, make_hipExtent(0, 4, 4), s));
  ROW(hipMemset3DAsync(good, 1, make_hipExtent(64, 0, 4), s));
  ROW(hipMemset3DAsync(good, 1, make_hipExtent(64, 4, 0), s));
  ROW(hipMemset3DAsync(make_hipPitchedPtr(nullptr, 64, 64, 4), 1, make_hipExtent(64, 4, 4), s));
  ROW(hipMemset3DAsync(make_hipPitchedPtr(p, 64, 64, 4), 1, make_hipExtent(64, 4, 4), s));
}

static void prefetches(char *d, char *p) {
  char *m = nullptr;
  CHECK(hipMallocManaged((void **)&m, SIZE, hipMemAttachGlobal));
  ROW(hipMemPrefetchAsync(p, 64, 99, s));
  ROW(hipMemPrefetchAsync(nullptr, 64, 0, s));
  ROW(hipMemPrefetchAsync(m, 64, 99, s));
  ROW(hipMemPrefetchAsync(m, 64, -2, s));
  ROW(hipMemPrefetchAsync(m, 0, 0, s));
  ROW(hipMemPrefetchAsync(m, MORE, 0, s));
  ROW(hipMemPrefetchAsync(m + SIZE - 6, 64, 0, s));
  TURN(hipMemPrefetchAsync(d, 64, 0, s));
  TURN(hipMemPrefetchAsync(p, 64, 0, s));
  CHECK(hipFree(m));
}

int main() {
  begin_rows();
  char *d = device_alloc<char>(SIZE), *h;
  CHECK(hipHostMalloc((void **)&h, SIZE, 0));
  std::vector<char> memory(SIZE);
  char *p = memory.data();
  linear(d, h, p);
  rows(d, h);
  symbols(d, h);
  fills(d, p);
  prefetches(d, p);
  return end_rows();
}
