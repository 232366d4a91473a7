/* The requests of the KFD that tests make or watch, laid out as in the kernel's <linux/kfd_ioctl.h>
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

struct kfd_get_version {
  uint32_t major, minor;
};

struct kfd_set_cu_mask {
  uint32_t queue_id, num_cu_mask;
  uint64_t cu_mask_ptr;
};
static_assert(sizeof(kfd_set_cu_mask) == 16, "layout of kfd_ioctl_set_cu_mask_args");

struct kfd_get_queue_wave_state {
  uint64_t ctl_stack_address;
  uint32_t ctl_stack_used_size, save_area_used_size, queue_id, pad;
};
static_assert(sizeof(kfd_get_queue_wave_state) == 24, "layout of kfd_ioctl_get_queue_wave_state_args");

struct kfd_runtime_enable {
  uint64_t r_debug;
  uint32_t mode_mask, capabilities_mask;
};

struct kfd_runtime_info {
  uint64_t r_debug;
  uint32_t runtime_state, ttmp_setup;
};

struct kfd_queue_snapshot_entry {
  uint64_t exception_status, ring_base_address, write_pointer_address, read_pointer_address, ctx_save_restore_address;
  uint32_t queue_id, gpu_id, ring_size, queue_type, ctx_save_restore_area_size, reserved;
};
static_assert(sizeof(kfd_queue_snapshot_entry) == 64, "layout of kfd_queue_snapshot_entry");

struct kfd_dbg_trap {
  uint32_t pid, op;
  union {
    struct {
      uint64_t exception_mask, rinfo_ptr;
      uint32_t rinfo_size, dbg_fd;
    } enable;
    struct {
      uint64_t exception_mask, queue_array_ptr;
      uint32_t num_queues, grace_period;
    } suspend;
    struct {
      uint64_t queue_array_ptr;
      uint32_t num_queues, pad;
    } resume;
    struct {
      uint64_t exception_mask, snapshot_buf_ptr;
      uint32_t num_queues, entry_size;
    } snapshot;
    struct {
      uint64_t exception_mask;
      uint32_t gpu_id, queue_id;
    } query;
  };
};
static_assert(sizeof(kfd_dbg_trap) == 32, "layout of kfd_ioctl_dbg_trap_args");

enum {
  KFD_DBG_ENABLE = 0,
  KFD_DBG_DISABLE = 1,
  KFD_DBG_SUSPEND_QUEUES = 6,
  KFD_DBG_RESUME_QUEUES = 7,
  KFD_DBG_QUERY_DEBUG_EVENT = 11,
  KFD_DBG_GET_QUEUE_SNAPSHOT = 13,
};
#define KFD_DBG_QUEUE_INVALID (1u << 31)
#define KFD_EC_QUEUE_NEW (1ull << 30)

#define KFD_GET_VERSION _IOR('K', 0x01, struct kfd_get_version)
#define KFD_DESTROY_QUEUE _IOWR('K', 0x03, uint32_t[2])
#define KFD_SET_CU_MASK _IOW('K', 0x1a, struct kfd_set_cu_mask)
#define KFD_GET_QUEUE_WAVE_STATE _IOWR('K', 0x1b, struct kfd_get_queue_wave_state)
#define KFD_RUNTIME_ENABLE _IOWR('K', 0x25, struct kfd_runtime_enable)
#define KFD_DBG_TRAP _IOWR('K', 0x26, struct kfd_dbg_trap)

/* By type and number: newer headers pass longer structures under the same number. */
static inline bool kfd_creates_queue(unsigned long request) {
  return _IOC_TYPE(request) == 'K' && _IOC_NR(request) == 0x02;
}
static inline bool kfd_destroys_queue(unsigned long request) {
  return _IOC_TYPE(request) == 'K' && _IOC_NR(request) == 0x03;
}

enum { KFD_QUEUE_COMPUTE = 0, KFD_QUEUE_SDMA = 1, KFD_QUEUE_COMPUTE_AQL = 2, KFD_QUEUE_SDMA_XGMI = 3 };

#endif
