// run: env XSCHED_AUTO_XQUEUE_THRESHOLD=1
/* Calls that return only when they are done, and all in front of them: a query of the stream says so at once, whatever the
 * call was. */
#include "check.h"

#include <functional>

struct Call {
  const char *name;
  std::function<hipError_t(hipStream_t)> make;
};

static const size_t BYTES = 4096;

/* What a mark behind the work makes of a query depends on time; over all calls it shows. */
static const int ROUNDS = 6;

int main() {
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  char *one, *other, *pinned, *more;
  CHECK(hipMalloc((void **)&one, BYTES));
  CHECK(hipMalloc((void **)&other, BYTES));
  CHECK(hipHostMalloc((void **)&pinned, BYTES, 0));
  CHECK(hipHostMalloc((void **)&more, BYTES, 0));
  std::vector<char> memory(2 * BYTES), registered(BYTES);
  CHECK(hipHostRegister(registered.data(), BYTES, 0));
  char *pageable = memory.data(), *known = registered.data();
  CHECK(hipMemset(one, 1, BYTES));

  hip_Memcpy2D described{};
  described.srcMemoryType = hipMemoryTypeDevice, described.srcDevice = (hipDeviceptr_t)one;
  described.dstMemoryType = hipMemoryTypeHost, described.dstHost = pageable;
  described.srcPitch = described.dstPitch = 64, described.WidthInBytes = 32, described.Height = 4;
  hipMemcpy3DParms slices{};
  slices.srcPtr = make_hipPitchedPtr(one, 64, 64, 4), slices.dstPtr = make_hipPitchedPtr(pinned, 64, 64, 4);
  slices.extent = make_hipExtent(32, 4, 2), slices.kind = hipMemcpyDeviceToHost;
  hipPitchedPtr pitched = make_hipPitchedPtr(pinned, 64, 64, 4);

  std::vector<Call> calls = {
      {"fill of pinned memory", [=](hipStream_t) { return hipMemset(pinned, 1, 512); }},
      {"fill of registered memory", [=](hipStream_t) { return hipMemset(known, 1, 512); }},
      {"fill of bytes", [=](hipStream_t) { return hipMemsetD8((hipDeviceptr_t)pinned, 1, 512); }},
      {"fill of halves", [=](hipStream_t) { return hipMemsetD16((hipDeviceptr_t)pinned, 1, 256); }},
      {"fill of words", [=](hipStream_t) { return hipMemsetD32((hipDeviceptr_t)pinned, 1, 128); }},
      {"fill of rows", [=](hipStream_t) { return hipMemset2D(pinned, 64, 1, 32, 4); }},
      {"fill of slices", [=](hipStream_t) { return hipMemset3D(pitched, 1, make_hipExtent(32, 4, 2)); }},
      {"to the host", [=](hipStream_t) { return hipMemcpy(pageable, one, 64, hipMemcpyDeviceToHost); }},
      {"to the host, by its places", [=](hipStream_t) { return hipMemcpy(pinned, one, 64, hipMemcpyDefault); }},
      {"to the host, driver's", [=](hipStream_t) { return hipMemcpyDtoH(known, (hipDeviceptr_t)one, 64); }},
      {"rows to the host", [=](hipStream_t) { return hipMemcpy2D(pageable, 64, one, 64, 32, 4, hipMemcpyDeviceToHost); }},
      {"rows to pinned memory", [=](hipStream_t) { return hipMemcpy2D(pinned, 64, one, 64, 32, 4, hipMemcpyDefault); }},
      {"described rows", [=](hipStream_t) { return hipMemcpyParam2D(&described); }},
      {"slices", [=](hipStream_t) { return hipMemcpy3D(&slices); }},
      {"on its stream", [=](hipStream_t on) { return hipMemcpyWithStream(pageable, one, 64, hipMemcpyDeviceToHost, on); }},
      {"asynchronous", [=](hipStream_t on) { return hipMemcpyAsync(pageable, one, 64, hipMemcpyDeviceToHost, on); }},
      {"asynchronous, by its places", [=](hipStream_t on) { return hipMemcpyAsync(pageable, one, 64, hipMemcpyDefault, on); }},
      {"asynchronous, driver's", [=](hipStream_t on) { return hipMemcpyDtoHAsync(pageable, (hipDeviceptr_t)one, 64, on); }},
  };
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  if (version < 50300000) {
    /* Later runtimes return from these at once, or may. */
    std::vector<Call> early = {
        {"fill", [=](hipStream_t) { return hipMemset(one, 1, 512); }},
        {"fill of rows", [=](hipStream_t) { return hipMemset2D(one, 64, 1, 32, 4); }},
        {"inside the device", [=](hipStream_t) { return hipMemcpy(one, other, 64, hipMemcpyDeviceToDevice); }},
        {"inside, driver's", [=](hipStream_t) { return hipMemcpyDtoD((hipDeviceptr_t)one, (hipDeviceptr_t)other, 64); }},
        {"from pinned memory", [=](hipStream_t) { return hipMemcpy(one, pinned, 64, hipMemcpyHostToDevice); }},
        {"from pageable memory", [=](hipStream_t) { return hipMemcpy(one, pageable, 64, hipMemcpyDefault); }},
        {"between pinned ones", [=](hipStream_t) { return hipMemcpy(pinned, more, 64, hipMemcpyDefault); }},
        {"between pageable ones", [=](hipStream_t) { return hipMemcpy(pageable, pageable + 100, 64, hipMemcpyDefault); }},
        {"rows inside", [=](hipStream_t) { return hipMemcpy2D(one, 64, other, 64, 32, 4, hipMemcpyDefault); }},
        {"rows to the device", [=](hipStream_t) { return hipMemcpy2D(one, 64, pageable, 64, 32, 4, hipMemcpyDefault); }},
        {"inside, on its stream", [=](hipStream_t on) { return hipMemcpyWithStream(one, other, 64, hipMemcpyDeviceToDevice, on); }},
    };
    calls.insert(calls.end(), early.begin(), early.end());
  }

  struct {
    const char *name;
    hipStream_t stream;
  } streams[] = {{"a stream", stream}, {"the default one", nullptr}, {"the thread's own", hipStreamPerThread}};
  for (const Call &call : calls) {
    for (const auto &on : streams) {
      for (int round = 0; round < ROUNDS; round++) {
        launch_busy(on.stream, 1);
        CHECK(call.make(on.stream));
        hipError_t said = hipStreamQuery(on.stream);
        REQUIRE(said == hipSuccess, "%s behind work on %s: %s", call.name, on.name, hipGetErrorName(said));
      }
    }
    printf("%s\n", call.name);
  }

  if (version < 50300000) {
    /* One that does nothing waits for nothing; later runtimes wait for the stream all the same (7.2.4). */
    volatile uint32_t *opens;
    CHECK(hipHostMalloc((void **)&opens, 64, 0));
    *opens = 0;
    CHECK(hipStreamWaitValue32(stream, (void *)opens, 1, hipStreamWaitValueEq, ~0u));
    CHECK(hipMemset(pinned, 1, 0));
    CHECK(hipMemcpy2D(pageable, 64, pageable + BYTES, 64, 32, 4, hipMemcpyDefault));
    EXPECT(hipStreamQuery(stream), hipErrorNotReady);
    *opens = 1;
    CHECK(hipStreamSynchronize(stream));
  }
  CHECK(hipHostUnregister(known));
  return passed();
}
