// run: unlinked | no-work | build -Wl,--no-as-needed -lhsa-runtime64
/* What HIP never asks of the device, and ROCr can: barriers for any of several signals, copies of a box between two pitched
 * buffers by a copy engine, time stamps of copies, signals that raise an event. Straight on ROCr, without HIP. */
#include "check.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <atomic>

#define HSA(call)                                                            \
  do {                                                                       \
    hsa_status_t status_ = (call);                                           \
    REQUIRE(status_ == HSA_STATUS_SUCCESS, "%s: 0x%x", #call, (int)status_); \
  } while (0)

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t device_pool, host_pool;

static hsa_status_t see_pool(hsa_amd_memory_pool_t pool, void *found) {
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  bool allocatable = false;
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &allocatable);
  if (allocatable) *(hsa_amd_memory_pool_t *)found = pool;
  return allocatable ? HSA_STATUS_INFO_BREAK : HSA_STATUS_SUCCESS;
}

static hsa_status_t see_agent(hsa_agent_t agent, void *) {
  hsa_device_type_t type;
  hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
  bool is_gpu = type == HSA_DEVICE_TYPE_GPU;
  if (is_gpu && gpu.handle) return HSA_STATUS_SUCCESS;
  (is_gpu ? gpu : cpu) = agent;
  hsa_amd_agent_iterate_memory_pools(agent, see_pool, is_gpu ? &device_pool : &host_pool);
  return HSA_STATUS_SUCCESS;
}

static hsa_signal_t new_signal(hsa_signal_value_t value) {
  hsa_signal_t signal;
  HSA(hsa_signal_create(value, 0, nullptr, &signal));
  return signal;
}

/* Sleeps in the driver until an event comes, so that the device must raise one. */
static void wait_for(hsa_signal_t signal) {
  hsa_signal_value_t value =
      hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
  REQUIRE(value == 0, "a signal of 1 became %ld", (long)value);
}

/* The device may look at the slot as soon as the index is taken: it has a header that is no packet until the rest is there. */
static void submit(hsa_queue_t *queue, hsa_barrier_or_packet_t packet, int type) {
  uint64_t index = hsa_queue_add_write_index_screlease(queue, 1);
  auto *slot = (hsa_barrier_or_packet_t *)queue->base_address + index % queue->size;
  packet.header = HSA_PACKET_TYPE_INVALID << HSA_PACKET_HEADER_TYPE;
  *slot = packet;
  uint16_t header = (uint16_t)(type << HSA_PACKET_HEADER_TYPE |
                               HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                               HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE);
  __atomic_store_n(&slot->header, header, __ATOMIC_RELEASE);
  hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)index);
}

/* A barrier for any of up to five signals. */
static void barriers() {
  hsa_queue_t *queue, *other;
  HSA(hsa_queue_create(gpu, 1024, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
  HSA(hsa_queue_create(gpu, 1024, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &other));
  for (int which = 0; which < 5; which++) {
    hsa_signal_t any[5], done = new_signal(1), passed_by = new_signal(1);
    hsa_barrier_or_packet_t packet{}, plain{};
    for (int i = 0; i < 5; i++) packet.dep_signal[i] = any[i] = new_signal(1);
    packet.completion_signal = done;
    submit(queue, packet, HSA_PACKET_TYPE_BARRIER_OR);
    /* Another queue's packets go by: the device has seen both, and one still waits. */
    plain.completion_signal = passed_by;
    submit(other, plain, HSA_PACKET_TYPE_BARRIER_AND);
    wait_for(passed_by);
    REQUIRE(hsa_signal_load_scacquire(done) == 1, "a barrier-or with no signal at 0 is over");
    hsa_signal_store_screlease(any[which], 0);
    wait_for(done);
    for (int i = 0; i < 5; i++) HSA(hsa_signal_destroy(any[i]));
    HSA(hsa_signal_destroy(done));
    HSA(hsa_signal_destroy(passed_by));
  }
  hsa_barrier_or_packet_t none{};
  none.completion_signal = new_signal(1);
  submit(queue, none, HSA_PACKET_TYPE_BARRIER_OR);
  wait_for(none.completion_signal);
  HSA(hsa_signal_destroy(none.completion_signal));
  HSA(hsa_queue_destroy(queue));
  HSA(hsa_queue_destroy(other));
  printf("barriers for any signal\n");
}

/* A box of a pitched host buffer into one of the device and back, each with its own pitches. */
static void boxes() {
  const size_t pitch = 256, rows = 24, planes = 3, slice = pitch * rows, size = slice * planes;
  unsigned char *from, *back;
  void *device;
  HSA(hsa_amd_memory_pool_allocate(host_pool, size, 0, (void **)&from));
  HSA(hsa_amd_memory_pool_allocate(host_pool, size, 0, (void **)&back));
  HSA(hsa_amd_memory_pool_allocate(device_pool, size, 0, &device));
  HSA(hsa_amd_agents_allow_access(1, &gpu, nullptr, from));
  HSA(hsa_amd_agents_allow_access(1, &gpu, nullptr, back));
  for (size_t i = 0; i < size; i++) from[i] = (unsigned char)(i * 7 + i / 251);
  memset(back, 0, size);

  const hsa_dim3_t here{16, 3, 1}, there{32, 5, 0}, box{100, 11, 2};
  hsa_pitched_ptr_t a{from, pitch, slice}, b{device, pitch, slice}, c{back, pitch, slice};
  hsa_signal_t ready = new_signal(1), up = new_signal(1), down = new_signal(1);
  HSA(hsa_amd_memory_async_copy_rect(&b, &there, &a, &here, &box, gpu, hsaHostToDevice, 1, &ready, up));
  HSA(hsa_amd_memory_async_copy_rect(&c, &here, &b, &there, &box, gpu, hsaDeviceToHost, 1, &up, down));
  REQUIRE(hsa_signal_load_scacquire(down) == 1, "a copy did not wait for its signal");
  hsa_signal_store_screlease(ready, 0);
  wait_for(down);
  size_t wrong = 0;
  for (size_t z = 0; z < planes; z++)
    for (size_t y = 0; y < rows; y++)
      for (size_t x = 0; x < pitch; x++) {
        bool inside = x >= here.x && x < here.x + box.x && y >= here.y && y < here.y + box.y && z >= here.z;
        size_t i = z * slice + y * pitch + x;
        wrong += back[i] != (inside ? from[i] : 0);
      }
  REQUIRE(wrong == 0, "%zu bytes are wrong", wrong);
  for (hsa_signal_t signal : {ready, up, down}) HSA(hsa_signal_destroy(signal));
  HSA(hsa_amd_memory_pool_free(from));
  HSA(hsa_amd_memory_pool_free(back));
  HSA(hsa_amd_memory_pool_free(device));
  printf("boxes by a copy engine\n");
}

/* Copies say when they ran. */
static void stamps() {
  const size_t size = 1 << 20;
  unsigned char *from, *back;
  void *device;
  HSA(hsa_amd_memory_pool_allocate(host_pool, size, 0, (void **)&from));
  HSA(hsa_amd_memory_pool_allocate(host_pool, size, 0, (void **)&back));
  HSA(hsa_amd_memory_pool_allocate(device_pool, size, 0, &device));
  HSA(hsa_amd_agents_allow_access(1, &gpu, nullptr, from));
  HSA(hsa_amd_agents_allow_access(1, &gpu, nullptr, back));
  for (size_t i = 0; i < size; i++) from[i] = (unsigned char)(i * 13 + i / 127);
  HSA(hsa_amd_profiling_async_copy_enable(true));
  hsa_signal_t up = new_signal(1), down = new_signal(1);
  HSA(hsa_amd_memory_async_copy(device, gpu, from, cpu, size, 0, nullptr, up));
  HSA(hsa_amd_memory_async_copy(back, cpu, device, gpu, size, 1, &up, down));
  wait_for(down);
  SAME(back, from, size, std::string("there and back"));
  hsa_amd_profiling_async_copy_time_t first, second;
  HSA(hsa_amd_profiling_get_async_copy_time(up, &first));
  HSA(hsa_amd_profiling_get_async_copy_time(down, &second));
  REQUIRE(first.start <= first.end && first.end <= second.start && second.start <= second.end && first.start > 0,
          "times %llu %llu %llu %llu", (unsigned long long)first.start, (unsigned long long)first.end,
          (unsigned long long)second.start, (unsigned long long)second.end);
  HSA(hsa_signal_destroy(up));
  HSA(hsa_signal_destroy(down));
  HSA(hsa_amd_memory_pool_free(from));
  HSA(hsa_amd_memory_pool_free(back));
  HSA(hsa_amd_memory_pool_free(device));
  printf("time stamps of copies\n");
}

int main() {
  HSA(hsa_init());
  HSA(hsa_iterate_agents(see_agent, nullptr));
  REQUIRE(gpu.handle && device_pool.handle && host_pool.handle, "no GPU with memory");
  barriers();
  boxes();
  stamps();
  HSA(hsa_shut_down());
  return passed();
}
