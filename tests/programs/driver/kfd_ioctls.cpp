// run: unlinked | no-work | build -Wl,--no-as-needed -lhsa-runtime64
/* Every documented answer of the KFD to what is about queues and about debugging them, from Linux 6.12 (interface 1.17) on:
 * UPDATE_QUEUE, SET_CU_MASK, GET_QUEUE_WAVE_STATE, RUNTIME_ENABLE, DBG_TRAP. On a real /dev/kfd as well as on gpu-sim's; which
 * of the two it was is said. Straight on ROCr, which makes the queues, without HIP. Needs the right to trace its children. */
#include "check.h"

#include <fcntl.h>
#include <hsa/hsa.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <thread>

#include "kfd_seen.h"

#define HSA(call)                                                            \
  do {                                                                       \
    hsa_status_t status_ = (call);                                           \
    REQUIRE(status_ == HSA_STATUS_SUCCESS, "%s: 0x%x", #call, (int)status_); \
  } while (0)

/* The call fails with this errno. */
#define REFUSED(call, want)                                                                       \
  do {                                                                                            \
    errno = 0;                                                                                    \
    int result_ = (call);                                                                         \
    REQUIRE(result_ == -1 && errno == (want), "%s: %d, %s instead of %s", #call, result_,         \
            strerror(errno), strerror(want));                                                     \
  } while (0)

/* The call succeeds with this result. */
#define GIVES(call, want)                                                                    \
  do {                                                                                       \
    errno = 0;                                                                               \
    int result_ = (call);                                                                    \
    REQUIRE(result_ == (want), "%s: %d (%s) instead of %d", #call, result_, strerror(errno), \
            (int)(want));                                                                    \
  } while (0)

static int kfd = -1;
/* What RUNTIME_ENABLE said before the first queue (newer runtimes have asked before us). */
static int runtime_first = -1;

static int raw(unsigned long request, void *argument) { return real_ioctl(kfd, request, argument); }

static int enable_runtime() {
  kfd_runtime_enable enable = {0, 1, 0};
  return raw(KFD_RUNTIME_ENABLE, &enable);
}

static void enable_first(int fd) {
  kfd = fd;
  runtime_first = enable_runtime() == 0 ? 0 : errno;
}

static hsa_agent_t gpu;

static hsa_status_t see_agent(hsa_agent_t agent, void *) {
  hsa_device_type_t type;
  hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
  if (type == HSA_DEVICE_TYPE_GPU && !gpu.handle) gpu = agent;
  return HSA_STATUS_SUCCESS;
}

/* A queue with a packet that is there once. */
struct Line {
  hsa_queue_t *queue;
  hsa_signal_t signal;
  kfd_create_queue kfd = {};

  Line() {
    HSA(hsa_queue_create(gpu, 1024, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, 0, 0, &queue));
    HSA(hsa_signal_create(0, 0, nullptr, &signal));
    for (const SeenQueue &other : queues_seen()) {
      if (other.made.ring_base_address == (uint64_t)queue->base_address) kfd = other.made;
    }
    REQUIRE(kfd.ring_size, "the queue was not seen at its creation");
  }

  /* Submits a barrier packet that waits for nothing. */
  void submit() {
    hsa_signal_store_relaxed(signal, 1);
    uint64_t index = hsa_queue_add_write_index_screlease(queue, 1);
    auto *slot = (hsa_barrier_and_packet_t *)queue->base_address + index % queue->size;
    memset((char *)slot + 4, 0, sizeof(*slot) - 4);
    slot->completion_signal = signal;
    uint32_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE;
    __atomic_store_n((uint32_t *)slot, header, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)index);
  }

  bool done() { return hsa_signal_load_scacquire(signal) == 0; }

  void must_end() {
    hsa_signal_value_t value = hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX,
                                                         HSA_WAIT_STATE_ACTIVE);
    REQUIRE(value == 0, "a signal of 1 became %ld", (long)value);
  }

  /* Nothing comes of it in the next while; on a queue that runs it would take microseconds. */
  void must_not_move() {
    REQUIRE(never_in(20 * MS, [&] { return done(); }), "a packet of a queue that is off was taken");
  }

  int update(uint32_t percentage) {
    kfd_update_queue update = as_it_is();
    update.queue_percentage = percentage;
    return raw(KFD_UPDATE_QUEUE, &update);
  }

  kfd_update_queue as_it_is() {
    return {kfd.ring_base_address, kfd.queue_id, kfd.ring_size, kfd.queue_percentage, kfd.queue_priority};
  }
};

static int update_as(kfd_update_queue update) { return raw(KFD_UPDATE_QUEUE, &update); }

static void updates(Line &line) {
  kfd_update_queue good = line.as_it_is();
  auto with = [&](auto change) {
    kfd_update_queue update = good;
    change(update);
    return update_as(update);
  };
  REFUSED(with([](auto &u) { u.queue_percentage = 101; }), EINVAL);
  REFUSED(with([](auto &u) { u.queue_priority = 16; }), EINVAL);
  REFUSED(with([](auto &u) { u.ring_size += 1; }), EINVAL);
  REFUSED(with([](auto &u) { u.queue_id = 0xFFFF; }), EFAULT);
  REFUSED(with([](auto &u) { u.ring_size *= 2; }), EFAULT);
  REFUSED(with([](auto &u) { u.ring_base_address += 4096; }), EFAULT);
  GIVES(update_as(good), 0);
  line.submit();
  line.must_end();
  GIVES(line.update(0), 0);
  GIVES(line.update(0), 0);
  line.submit();
  line.must_not_move();
  /* Bits 8 to 15 are something else. */
  GIVES(line.update(100 | 1 << 8), 0);
  line.must_end();
  GIVES(update_as(good), 0);
  printf("UPDATE_QUEUE: EINVAL, EFAULT, off and on\n");
}

static int wave_state(uint64_t area, uint32_t id) {
  kfd_get_queue_wave_state state = {area, 0, 0, id, 0};
  return raw(KFD_GET_QUEUE_WAVE_STATE, &state);
}

static void wave_states(Line &line) {
  uint64_t area = line.kfd.ctx_save_restore_address;
  REFUSED(wave_state(area, line.kfd.queue_id), EINVAL);
  REFUSED(wave_state(area, 0xFFFF), EFAULT);
  GIVES(line.update(0), 0);
  errno = 0;
  int result = wave_state(area, line.kfd.queue_id);
  REQUIRE(result == 0 || errno == EINVAL, "%s", strerror(errno));
  printf("GET_QUEUE_WAVE_STATE: %s\n", result == 0 ? "waves are saved" : "waves are not saved");
  GIVES(line.update(100), 0);
}

static int set_mask(uint32_t id, uint32_t bits, const void *mask) {
  kfd_set_cu_mask set = {id, bits, (uint64_t)mask};
  return raw(KFD_SET_CU_MASK, &set);
}

static const uint32_t full_mask[32] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                       ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                       ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};

static void masks(Line &line) {
  uint32_t id = line.kfd.queue_id;
  REFUSED(set_mask(id, 0, full_mask), EINVAL);
  REFUSED(set_mask(id, 33, full_mask), EINVAL);
  REFUSED(set_mask(id, 32, (void *)8), EFAULT);
  REFUSED(set_mask(0xFFFF, 32, full_mask), EFAULT);
  printf("SET_CU_MASK: EINVAL, EFAULT\n");
}

static kfd_dbg_trap trap(uint32_t pid, uint32_t op) {
  kfd_dbg_trap trap = {};
  trap.pid = pid;
  trap.op = op;
  return trap;
}

static kfd_runtime_info info;

static int enable(uint32_t pid, int descriptor) {
  kfd_dbg_trap t = trap(pid, KFD_DBG_ENABLE);
  t.enable = {0, (uint64_t)&info, sizeof(info), (uint32_t)descriptor};
  int result = raw(KFD_DBG_TRAP, &t);
  if (result == 0) REQUIRE(t.enable.rinfo_size == sizeof(info), "%u bytes of information", t.enable.rinfo_size);
  return result;
}

static int operation(uint32_t pid, uint32_t op) {
  kfd_dbg_trap t = trap(pid, op);
  return raw(KFD_DBG_TRAP, &t);
}

static int suspend(uint32_t pid, uint32_t *ids, uint32_t count) {
  kfd_dbg_trap t = trap(pid, KFD_DBG_SUSPEND_QUEUES);
  t.suspend = {0, (uint64_t)ids, count, 0};
  return raw(KFD_DBG_TRAP, &t);
}

static int resume(uint32_t pid, uint32_t *ids, uint32_t count) {
  kfd_dbg_trap t = trap(pid, KFD_DBG_RESUME_QUEUES);
  t.resume = {(uint64_t)ids, count, 0};
  return raw(KFD_DBG_TRAP, &t);
}

/* How many queues there are; those that were new are not any more. */
static int snapshot(uint32_t pid, kfd_queue_snapshot_entry *entries, uint32_t room, uint32_t size) {
  kfd_dbg_trap t = trap(pid, KFD_DBG_GET_QUEUE_SNAPSHOT);
  t.snapshot = {KFD_EC_QUEUE_NEW, (uint64_t)entries, room, size};
  return raw(KFD_DBG_TRAP, &t) == 0 ? (int)t.snapshot.num_queues : -1;
}

static int query(uint32_t pid, uint64_t clear) {
  kfd_dbg_trap t = trap(pid, KFD_DBG_QUERY_DEBUG_EVENT);
  t.query = {clear, 0, 0};
  return raw(KFD_DBG_TRAP, &t);
}

static void oneself(Line &line, int event) {
  uint32_t me = (uint32_t)getpid(), id = line.kfd.queue_id, ids[2];
  kfd_queue_snapshot_entry entries[64];
  REFUSED(operation(0x7FFFFFFF, KFD_DBG_DISABLE), ESRCH);
  REFUSED(operation(me, KFD_DBG_DISABLE), EINVAL);
  REFUSED(suspend(me, ids, 0), EINVAL);
  REFUSED(enable(me, 0x7FFF), EBADF);
  GIVES(enable(me, event), 0);
  REQUIRE(info.runtime_state == 1, "the runtime's state is %u", info.runtime_state);
  REFUSED(enable(me, event), EALREADY);
  REFUSED(operation(me, 15), EINVAL);
  REFUSED(suspend(me, ids, 1025), EINVAL);
  REFUSED(suspend(me, (uint32_t *)8, 1), EFAULT);
  REFUSED(snapshot(me, entries, 64, 0), EINVAL);
  REFUSED(query(me, 0), EAGAIN);
  printf("DBG_TRAP: ESRCH, EINVAL, EBADF, EALREADY, EFAULT, EAGAIN\n");

  ids[0] = id, ids[1] = 0xFFFF;
  GIVES(suspend(me, ids, 2), 1);
  REQUIRE(ids[0] == id && ids[1] == (0xFFFF | KFD_DBG_QUEUE_INVALID), "ids are %x, %x", ids[0], ids[1]);
  line.submit();
  line.must_not_move();
  GIVES(line.update(100), 0);
  line.must_not_move();
  ids[0] = id, ids[1] = 0xFFFF;
  GIVES(resume(me, ids, 2), 1);
  REQUIRE(ids[0] == id && ids[1] == (0xFFFF | KFD_DBG_QUEUE_INVALID), "ids are %x, %x", ids[0], ids[1]);
  line.must_end();
  printf("SUSPEND_QUEUES and RESUME_QUEUES: kept beside the percentage, unknown ids are marked\n");

  Line born;
  ids[0] = born.kfd.queue_id;
  GIVES(suspend(me, ids, 1), 0);
  REQUIRE(ids[0] == (born.kfd.queue_id | KFD_DBG_QUEUE_INVALID), "a new queue's id is %x", ids[0]);
  int count = snapshot(me, entries, 64, sizeof(entries[0]));
  REQUIRE(count > 0 && count <= 64, "%d queues", count);
  bool seen = false;
  for (int i = 0; i < count; i++) {
    if (entries[i].queue_id != born.kfd.queue_id) continue;
    seen = true;
    REQUIRE(entries[i].exception_status & KFD_EC_QUEUE_NEW, "it is not new");
    REQUIRE(entries[i].ring_base_address == born.kfd.ring_base_address, "another ring");
    REQUIRE(entries[i].ring_size == born.kfd.ring_size && entries[i].queue_type == 2, "another queue");
  }
  REQUIRE(seen, "the snapshot lacks the new queue");
  ids[0] = born.kfd.queue_id;
  GIVES(suspend(me, ids, 1), 1);
  printf("a new queue is suspended once a snapshot was taken\n");

  std::atomic<bool> gone(false);
  std::thread destroyer([&] {
    HSA(hsa_queue_destroy(born.queue));
    gone = true;
  });
  REQUIRE(never_in(50 * MS, [&] { return gone.load(); }), "a suspended queue was destroyed");
  GIVES(resume(me, nullptr, 0) >= 1, 1);
  destroyer.join();
  printf("a suspended queue is destroyed once it is resumed\n");

  ids[0] = id;
  GIVES(suspend(me, ids, 1), 1);
  line.submit();
  line.must_not_move();
  GIVES(operation(me, KFD_DBG_DISABLE), 0);
  line.must_end();
  REFUSED(operation(me, KFD_DBG_DISABLE), EINVAL);
  printf("the end of the session resumes\n");
}

/* The other process: makes a queue, submits a packet at each byte, and says when it is done. */
static int be_target() {
  Line line;
  char byte = 'r';
  REQUIRE(write(1, &byte, 1) == 1, "nobody reads");
  while (read(0, &byte, 1) == 1) {
    line.submit();
    REQUIRE(write(1, "s", 1) == 1, "nobody reads");
    line.must_end();
    REQUIRE(write(1, "d", 1) == 1, "nobody reads");
  }
  return 0;
}

struct Target {
  pid_t pid;
  int in[2], out[2];

  explicit Target(const char *program) {
    REQUIRE(pipe(in) == 0 && pipe(out) == 0, "no pipes");
    pid = fork();
    if (pid == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (int fd : {in[0], in[1], out[0], out[1]}) close(fd);
      execl(program, program, "target", nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    says('r');
  }

  void says(char want) {
    char byte = 0;
    REQUIRE(read(out[0], &byte, 1) == 1 && byte == want, "the target says %c instead of %c", byte, want);
  }

  void submit() {
    REQUIRE(write(in[1], "x", 1) == 1, "the target has gone");
    says('s');
  }

  void must_not_move() {
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    char byte;
    REQUIRE(never_in(20 * MS, [&] { return read(out[0], &byte, 1) != -1 || errno != EAGAIN; }),
            "a suspended queue ran");
    fcntl(out[0], F_SETFL, 0);
  }

  void end() {
    close(in[1]);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0, "the target ended with %x", status);
    close(out[0]);
  }
};

/* Suspends every queue of a process that it traces; how many, or -1. */
static int take_all(uint32_t pid, int event) {
  kfd_queue_snapshot_entry entries[64];
  uint32_t ids[64];
  if (enable(pid, event) != 0) return -1;
  int count = snapshot(pid, entries, 64, sizeof(entries[0]));
  for (int i = 0; i < count; i++) ids[i] = entries[i].queue_id;
  return count < 0 ? -1 : suspend(pid, ids, (uint32_t)count);
}

static void another(const char *program, int event) {
  Target target(program);
  uint32_t pid = (uint32_t)target.pid;
  REFUSED(enable(pid, event), EPERM);
  REQUIRE(ptrace(PTRACE_SEIZE, target.pid, nullptr, nullptr) == 0, "cannot trace a child: %s", strerror(errno));
  int taken = take_all(pid, event);
  REQUIRE(taken >= 1, "%d queues of the other process: %s", taken, strerror(errno));
  target.submit();
  target.must_not_move();
  GIVES(resume(pid, nullptr, 0), taken);
  target.says('d');
  GIVES(operation(pid, KFD_DBG_DISABLE), 0);
  REQUIRE(ptrace(PTRACE_INTERRUPT, target.pid, nullptr, nullptr) == 0, "%s", strerror(errno));
  int status = 0;
  REQUIRE(waitpid(target.pid, &status, __WALL) == target.pid && WIFSTOPPED(status), "status %x", status);
  REQUIRE(ptrace(PTRACE_DETACH, target.pid, nullptr, nullptr) == 0, "%s", strerror(errno));
  printf("another process: EPERM without tracing it, suspended and resumed with\n");

  /* A debugger that ends without a word. */
  pid_t debugger = fork();
  if (debugger == 0) {
    kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
    bool traced = ptrace(PTRACE_SEIZE, target.pid, nullptr, nullptr) == 0;
    int taken = kfd >= 0 && traced ? take_all(pid, event) : -1;
    if (taken < 1) _exit(1);
    target.submit();
    target.must_not_move();
    _exit(0);
  }
  REQUIRE(waitpid(debugger, &status, 0) == debugger && status == 0, "the debugger ended with %x", status);
  target.says('d');
  target.end();
  printf("another process goes on when its debugger ends\n");
}

/* A line of a file in the topology's node of a GPU, as a number; 0 if there is none. */
static unsigned long node_value(const std::string &node, const char *file, const char *name) {
  std::string path = "/sys/class/kfd/kfd/topology/nodes/" + node + "/" + file;
  FILE *text = fopen(path.c_str(), "r");
  if (!text) return 0;
  char line[256];
  unsigned long value = 0;
  while (fgets(line, sizeof(line), text)) {
    if (strncmp(line, name, strlen(name)) == 0) value = strtoul(line + strlen(name), nullptr, 10);
  }
  fclose(text);
  return value;
}

/* Which generation a GPU is: 90010 is gfx90a, 110000 gfx1100. */
static unsigned long target_version(uint32_t gpu_id) {
  DIR *nodes = opendir("/sys/class/kfd/kfd/topology/nodes");
  unsigned long version = 0;
  while (dirent *node = nodes ? readdir(nodes) : nullptr) {
    if (node_value(node->d_name, "gpu_id", "") == gpu_id) {
      version = node_value(node->d_name, "properties", "gfx_target_version ");
    }
  }
  if (nodes) closedir(nodes);
  return version;
}

/* What sysfs says of a queue. */
static void shown(const Line &line) {
  std::string queue = "/sys/class/kfd/kfd/proc/" + std::to_string(getpid()) + "/queues/" + std::to_string(line.kfd.queue_id);
  auto value = [&](const char *name) {
    unsigned long number = ~0ul;
    FILE *text = fopen((queue + "/" + name).c_str(), "r");
    REQUIRE(text && fscanf(text, "%lu", &number) == 1, "no number in %s/%s", queue.c_str(), name);
    fclose(text);
    return number;
  };
  REQUIRE(value("size") == line.kfd.ring_size, "size is %lu", value("size"));
  REQUIRE(value("gpuid") == line.kfd.gpu_id, "gpuid is %lu", value("gpuid"));
  REQUIRE(value("type") == 0, "type is %lu", value("type"));
  printf("sysfs: size, type and device of a queue\n");
}

int main(int argc, char **argv) {
  before_first_queue = enable_first;
  HSA(hsa_init());
  HSA(hsa_iterate_agents(see_agent, nullptr));
  REQUIRE(gpu.handle, "no GPU");
  if (argc > 1 && strcmp(argv[1], "target") == 0) return be_target();
  struct stat device;
  REQUIRE(stat("/dev/kfd", &device) == 0, "no /dev/kfd");
  printf("driver: %s\n", S_ISCHR(device.st_mode) ? "real" : "simulated");
  Line line;
  kfd_get_version version = {};
  GIVES(raw(KFD_GET_VERSION, &version), 0);
  /* What is simulated is 1.17 without the mappings of 1.15, of which the runtime must not be told. */
  bool is_known = S_ISCHR(device.st_mode) ? version.minor >= 17 : version.minor == 14;
  REQUIRE(version.major == 1 && is_known, "the interface is %u.%u; this is for 1.17 and newer, and the simulated 1.14",
          version.major, version.minor);
  REFUSED(raw(_IO('K', 0xFF), nullptr), EINVAL);
  uint32_t unknown[2] = {0xFFFF, 0};
  REFUSED(raw(KFD_DESTROY_QUEUE, unknown), EINVAL);
  REQUIRE(runtime_first == 0 || runtime_first == EBUSY, "RUNTIME_ENABLE: %s", strerror(runtime_first));
  REFUSED(enable_runtime(), EBUSY);
  printf("RUNTIME_ENABLE: EBUSY\n");

  shown(line);
  updates(line);
  wave_states(line);
  masks(line);
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  oneself(line, event);
  another("/proc/self/exe", event);

  GIVES(set_mask(line.kfd.queue_id, sizeof(full_mask) * 8, full_mask), 0);
  line.submit();
  line.must_end();
  if (target_version(line.kfd.gpu_id) / 100 == 1100) {
    uint32_t me = (uint32_t)getpid(), id = line.kfd.queue_id;
    GIVES(enable(me, event), 0);
    REQUIRE(info.runtime_state == 2, "the runtime's state is %u", info.runtime_state);
    REFUSED(suspend(me, &id, 1), EPERM);
    REFUSED(set_mask(id, 32, full_mask), EBUSY);
    GIVES(operation(me, KFD_DBG_DISABLE), 0);
    printf("gfx11: a mask and a debugger exclude each other\n");
  }
  HSA(hsa_queue_destroy(line.queue));
  HSA(hsa_shut_down());
  return passed();
}
