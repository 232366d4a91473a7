// run: --gpus 2 | args 12
/* Two ranks of a job, as processes of a collective operation: each has a device and a stream, and memory that both reach by an IPC
 * handle. In each round both exchange their words, and each one's stream waits on the device for the other one.
 *
 * usage: ranks [ROUNDS]. Without a number it says "ready PID PID", and goes on until the end of its input.
 *
 * The first process is rank 0, and starts rank 1. Rank 0 sends rank 1 a byte for each round, so both do the same number. */

#include "processes.h"
#include "work.h"

namespace {

const size_t N = 512;
/* Rounds that may be submitted and not complete. */
const gw_u64 AHEAD = 4;

/* What both ranks reach, in memory of rank 0's device: for each rank the words that it gives, how far it is, and what it has read. */
struct Shared {
  gw_u64 given[2][N];
  gw_u64 ready[2], read[2];
};

/* The words of a rank before the first round, and what it has taken from the other one. */
Words first_given(int rank) { return pattern_words(N, 100 + (gw_u64)rank); }
Words first_taken(int rank) { return pattern_words(N, 200 + (gw_u64)rank); }

struct Rank {
  const int rank;
  Shared *const shared;
  hipStream_t stream = new_stream();
  hipEvent_t ends[AHEAD];
  Words taken = first_taken(rank), given = first_given(rank), theirs = first_given(1 - rank);
  gw_u64 *device = device_words(taken);
  gw_u64 rounds = 0;

  Rank(int rank, Shared *shared) : rank(rank), shared(shared) {
    for (hipEvent_t &end : ends) CHECK(hipEventCreateWithFlags(&end, hipEventDisableTiming | hipEventBlockingSync));
    CHECK(hipDeviceSynchronize());
  }

  void meet(gw_u64 *places) {
    CHECK(hipStreamWriteValue64(stream, &places[rank], rounds, 0));
    CHECK(hipStreamWaitValue64(stream, &places[1 - rank], rounds, hipStreamWaitValueGte, ~0ull));
  }

  void round() {
    if (rounds >= AHEAD) CHECK(hipEventSynchronize(ends[rounds % AHEAD]));
    hipEvent_t end = ends[rounds++ % AHEAD];
    launch_busy(stream, MS);
    launch_mix(stream, shared->given[rank], shared->given[rank], N, rounds);
    meet(shared->ready);
    launch_mix(stream, device, shared->given[1 - rank], N, rounds);
    meet(shared->read);
    CHECK(hipEventRecord(end, stream));
    cpu_mix(given, given, rounds);
    cpu_mix(theirs, theirs, rounds);
    cpu_mix(taken, theirs, rounds);
  }

  /* Waits for all rounds; the digest of what the rank has taken. */
  gw_u64 check() {
    CHECK(hipStreamSynchronize(stream));
    SAME_WORDS(device, taken, "what the rank has taken from the other one");
    SAME_WORDS(shared->given[rank], given, "what the rank has given");
    return digest_of(taken);
  }
};

/* The handle comes by standard input, and then a byte for each round. */
int second() {
  hipIpcMemHandle_t handle;
  REQUIRE(read(0, &handle, sizeof handle) == (ssize_t)sizeof handle, "a handle");
  CHECK(hipSetDevice(1));
  void *shared = nullptr;
  CHECK(hipIpcOpenMemHandle(&shared, handle, hipIpcMemLazyEnablePeerAccess));
  Rank rank(1, (Shared *)shared);
  printf("ready %d\n", (int)getpid());
  char byte;
  while (read(0, &byte, 1) == 1) rank.round();
  printf("%016llx\n", rank.check());
  CHECK(hipIpcCloseMemHandle(shared));
  return passed();
}

}  // namespace

int main(int argc, char **argv) {
  if (has_flag(argc, argv, "second")) return second();
  const gw_u64 wanted = argc > 1 ? strtoull(argv[1], nullptr, 10) : 0;
  Child child = start_self({"second"});
  CHECK(hipSetDevice(0));
  Shared *shared = device_alloc<Shared>(1);
  CHECK(hipMemset(shared, 0, sizeof *shared));
  for (int rank : {0, 1}) {
    const Words words = first_given(rank);
    CHECK(hipMemcpy(shared->given[rank], words.data(), sizeof shared->given[rank], hipMemcpyHostToDevice));
  }
  CHECK(hipDeviceSynchronize());
  hipIpcMemHandle_t handle;
  CHECK(hipIpcGetMemHandle(&handle, shared));
  REQUIRE(write(child.input, &handle, sizeof handle) == (ssize_t)sizeof handle, "write: %s", strerror(errno));
  Rank rank(0, shared);
  int pid = 0;
  const std::string ready = child.line();
  REQUIRE(sscanf(ready.c_str(), "ready %d", &pid) == 1, "rank 1 said %s", ready.c_str());
  if (wanted == 0) printf("ready %d %d\n", (int)getpid(), pid);
  while (wanted > 0 ? rank.rounds < wanted : !input_has_ended()) {
    REQUIRE(write(child.input, "", 1) == 1, "write: %s", strerror(errno));
    rank.round();
  }
  child.let_go();
  /* Only what was asked for is the same in every run. */
  const gw_u64 digest = rank.check();
  const std::string theirs = child.line();
  if (wanted > 0) printf("rank 0: %016llx\nrank 1: %s\n", digest, theirs.c_str());
  REQUIRE(child.line() == "ok" && child.end() == 0, "rank 1 has failed: %s", theirs.c_str());
  CHECK(hipFree(shared));
  return passed();
}
