/* The requests of the KFD that a test makes or watches, laid out as in the kernel's <linux/kfd_ioctl.h>
 * (which needs a header of libdrm's that is not always installed). */
#ifndef GIVEWAY_TESTS_KFD_H
#define GIVEWAY_TESTS_KFD_H

#include <stdint.h>
#include <sys/ioctl.h>

struct kfd_create_queue {
  uint64_t ring_base_address, write_pointer_address, read_pointer_address, doorbell_offset;
  uint32_t ring_size, gpu_id, queue_type, queue_percentage, queue_priority, queue_id;
  uint64_t eop_buffer_address, eop_buffer_size, ctx_save_restore_address;
  uint32_t ctx_save_restore_size, ctl_stack_size;
};
static_assert(sizeof(kfd_create_queue) == 88, "layout of kfd_ioctl_create_queue_args");

struct kfd_update_queue {
  uint64_t ring_base_address;
  uint32_t queue_id, ring_size, queue_percentage, queue_priority;
};
static_assert(sizeof(kfd_update_queue) == 24, "layout of kfd_ioctl_update_queue_args");

struct kfd_wait_events {
  uint64_t events_ptr;
  uint32_t num_events, wait_for_all, timeout, wait_result;
};
static_assert(sizeof(kfd_wait_events) == 24, "layout of kfd_ioctl_wait_events_args");

#define KFD_UPDATE_QUEUE _IOW('K', 0x07, struct kfd_update_queue)
#define KFD_WAIT_EVENTS _IOWR('K', 0x0c, struct kfd_wait_events)

/* By type and number: newer headers pass longer structures under the same number. */
static inline bool kfd_creates_queue(unsigned long request) {
  return _IOC_TYPE(request) == 'K' && _IOC_NR(request) == 0x02;
}
static inline bool kfd_destroys_queue(unsigned long request) {
  return _IOC_TYPE(request) == 'K' && _IOC_NR(request) == 0x03;
}

enum { KFD_QUEUE_COMPUTE = 0, KFD_QUEUE_SDMA = 1, KFD_QUEUE_COMPUTE_AQL = 2, KFD_QUEUE_SDMA_XGMI = 3 };

#endif
