// loaded: library
/* A tool of ROCr (HSA_TOOLS_LIB), as profilers are: it takes the place of hsa_queue_create, so that every queue of the program shows it its
 * packets, and counts those that launch a kernel. */
#include <atomic>

/* Without it the header looks for the others in ROCr's source tree. */
#define AMD_INTERNAL_BUILD
#include <hsa/hsa_api_trace.h>

namespace {

std::atomic<unsigned long> dispatches;
AmdExtTable *extension;

void see(const void *packets, uint64_t count, uint64_t, void *, hsa_amd_queue_intercept_packet_writer pass_on) {
  auto *packet = (const hsa_kernel_dispatch_packet_t *)packets;
  for (uint64_t i = 0; i < count; i++)
    dispatches += (packet[i].header >> HSA_PACKET_HEADER_TYPE & 0xFF) == HSA_PACKET_TYPE_KERNEL_DISPATCH;
  pass_on(packets, count);
}

hsa_status_t create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                    void (*callback)(hsa_status_t, hsa_queue_t *, void *), void *data, uint32_t private_size,
                    uint32_t group_size, hsa_queue_t **queue) {
  hsa_status_t status = extension->hsa_amd_queue_intercept_create_fn(agent, size, type, callback, data, private_size,
                                                                     group_size, queue);
  if (status != HSA_STATUS_SUCCESS) return status;
  return extension->hsa_amd_queue_intercept_register_fn(*queue, see, nullptr);
}

}  // namespace

extern "C" bool OnLoad(HsaApiTable *table, uint64_t, uint64_t, const char *const *) {
  extension = table->amd_ext_;
  table->core_->hsa_queue_create_fn = create;
  return true;
}

extern "C" void OnUnload() {}

/* For the program: how many packets that launch a kernel it has written. */
extern "C" unsigned long packets_seen() { return dispatches; }
