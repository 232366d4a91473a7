// run: every-mode
/* Whoever knows that a stream's last command is complete is told so by hipStreamQuery, at once: after a synchronization
 * with an event, a query of one, a wait of another stream, a blocking copy, the default stream. */
#include "check.h"

static const int ROUNDS = 60;
static const gw_u64 SHORT = MS / 10;

/* `learn` returns when the stream's last command is complete; then queries say so, every time. */
template <typename Learn>
static void all_rounds(const char *name, hipStream_t stream, Learn learn) {
  for (int i = 0; i < ROUNDS; i++) {
    launch_busy(stream, SHORT);
    learn();
    for (int n = 0; n < 3; n++) {
      CHECK(hipStreamQuery(stream));
      CHECK(hipPeekAtLastError());
    }
  }
  printf("%s: complete\n", name);
}

static void wait_by_query(hipEvent_t event) {
  hipError_t state;
  while ((state = hipEventQuery(event)) == hipErrorNotReady) usleep(20);
  CHECK(state);
}

int main() {
  hipStream_t blocking, independent, third;
  hipEvent_t event, other, timed;
  CHECK(hipStreamCreate(&blocking));
  CHECK(hipStreamCreateWithFlags(&independent, hipStreamNonBlocking));
  CHECK(hipStreamCreateWithFlags(&third, hipStreamNonBlocking));
  CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  CHECK(hipEventCreateWithFlags(&other, hipEventDisableTiming));
  CHECK(hipEventCreate(&timed));
  Words words = pattern_words(64, 1);
  gw_u64 *device = device_words(words);

  for (hipStream_t stream : {blocking, independent, (hipStream_t) nullptr}) {
    all_rounds("hipEventSynchronize", stream, [&] {
      CHECK(hipEventRecord(event, stream));
      CHECK(hipEventSynchronize(event));
    });
    all_rounds("hipEventQuery", stream, [&] {
      CHECK(hipEventRecord(event, stream));
      wait_by_query(event);
    });
    all_rounds("hipStreamQuery", stream, [&] {
      hipError_t state;
      while ((state = hipStreamQuery(stream)) == hipErrorNotReady) usleep(20);
      CHECK(state);
    });
    all_rounds("hipStreamSynchronize", stream, [&] { CHECK(hipStreamSynchronize(stream)); });
  }
  all_rounds("hipEventElapsedTime", independent, [&] {
    float ms;
    hipError_t state;
    CHECK(hipEventRecord(timed, independent));
    while ((state = hipEventElapsedTime(&ms, timed, timed)) == hipErrorNotReady) usleep(20);
    CHECK(state);
  });
  all_rounds("a stream that waited", independent, [&] {
    CHECK(hipEventRecord(event, independent));
    CHECK(hipStreamWaitEvent(third, event, 0));
    CHECK(hipStreamSynchronize(third));
  });
  all_rounds("a stream that waited for one that waited", independent, [&] {
    CHECK(hipEventRecord(event, independent));
    CHECK(hipStreamWaitEvent(third, event, 0));
    CHECK(hipEventRecord(other, third));
    CHECK(hipStreamWaitEvent(blocking, other, 0));
    CHECK(hipEventRecord(event, blocking));
    CHECK(hipEventSynchronize(event));
  });
  all_rounds("a blocking copy on the stream", independent, [&] {
    CHECK(hipMemcpyWithStream(words.data(), device, 512, hipMemcpyDeviceToHost, independent));
  });
  all_rounds("a blocking copy on the default stream", blocking, [&] {
    CHECK(hipMemcpy(words.data(), device, 512, hipMemcpyDeviceToHost));
  });
#if HIP_VERSION_MAJOR * 100 + HIP_VERSION_MINOR <= 602 /* later ones need not wait for what they have copied aside */
  all_rounds("a blocking copy to the device on the stream", independent, [&] {
    CHECK(hipMemcpyWithStream(device, words.data(), 512, hipMemcpyHostToDevice, independent));
  });
  all_rounds("a blocking copy to the device on the default stream", blocking, [&] {
    CHECK(hipMemcpy(device, words.data(), 512, hipMemcpyHostToDevice));
  });
#endif
  all_rounds("an event of the default stream", blocking, [&] {
    CHECK(hipEventRecord(event, nullptr));
    CHECK(hipEventSynchronize(event));
  });
  all_rounds("hipDeviceSynchronize", independent, [&] { CHECK(hipDeviceSynchronize()); });
  return passed();
}
