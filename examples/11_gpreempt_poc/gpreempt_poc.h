/* Four functions over xsched/kfd.h, for programs that were written against a proof of concept of preemption by the driver:
 * the queues of a process are taken off the hardware and put back. Link with -lgpreempt_poc. */
#ifndef GPREEMPT_POC_H
#define GPREEMPT_POC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A hardware queue of a process. */
struct gpreempt_queue_status {
  uint32_t queue_id;
  uint32_t gpu_id;
  /** 1: it takes kernels; 0: it is a copy engine's. */
  uint32_t is_compute;
  /** 1: off the hardware; 0: it may run; -1: not known. */
  int32_t suspended;
  uint64_t ring_address;
  uint64_t ring_size;
};

/* What the functions return: 0, or one of these. */
#define GPREEMPT_EINVAL (-1)     /* an argument is wrong, or there is no such process or queue */
#define GPREEMPT_EPERM (-2)      /* the process may not be traced, or is being debugged */
#define GPREEMPT_ENOTSUP (-3)    /* this driver, device or runtime cannot, or must not */
#define GPREEMPT_ETIMEDOUT (-4)  /* a queue did not come off in time; the GPU is being reset */
#define GPREEMPT_EIO (-5)        /* the device failed, or is being reset */
#define GPREEMPT_EAGAIN (-6)     /* a queue is new or being destroyed: try again */

/** Opens the driver for a process (0: the calling one). Calls for a process need it once; again it does nothing. */
int gpreempt_poc_init(int pid);

/** Takes queues off the hardware: those of the array, or all compute queues if it is null. All of them or none. */
int gpreempt_suspend_queues(int pid, const uint32_t *queue_ids, uint32_t count);

/** Puts queues back: those of the array, or all that were suspended if it is null. */
int gpreempt_resume_queues(int pid, const uint32_t *queue_ids, uint32_t count);

/** Writes what is known of the process's queues. count: in, how many fit; out, how many there are. */
int gpreempt_get_queue_status(int pid, struct gpreempt_queue_status *queues, uint32_t *count);

#ifdef __cplusplus
}
#endif

#endif
