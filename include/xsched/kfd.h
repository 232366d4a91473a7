/* Hardware queues of a process, taken off the hardware and put back through AMD's kernel driver (KFD). Part of giveway.
 *
 * A session is about one process: the calling one, or another one. In the calling process the queues are those that the
 * library has seen being made, and its own way of holding is used (XSCHED_KFD_MECHANISM); no right is needed. Another
 * process is debugged through the driver: that needs the right to trace it (ptrace), KFD 1.13 (Linux 6.5), and a runtime
 * that has enabled debugging, as ROCm does from 5.5 on. It is traced by a short-lived thread while a request is made; what
 * ends of it meanwhile is told to whoever waits for it, as ever. While such a session is open nobody else can debug that process's
 * GPU work, and when the calling process ends, everything that it suspended goes on.
 *
 * A queue that was suspended here runs again when it is resumed here (one resumption is enough, whichever session of the
 * process makes it), and no scheduler holds it. One that could not be put back stays with the session that suspended it,
 * which tries again when it resumes or is closed. The end of the process releases its own queues before the handlers of exit
 * run that were there before it had any. A stream is not a
 * hardware queue, and one hardware queue serves several streams (docs/levels.md): whoever suspends single queues of a
 * program that waits for them stops that program.
 *
 * Queues are suspended only where the driver saves running waves. Every function may be called from any thread; those
 * that make requests to the driver may take as long as the driver does. */
#ifndef XSCHED_KFD_H
#define XSCHED_KFD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A session. 0 names none. */
typedef uint64_t XKfdSession;

/** What every function returns. */
typedef enum {
  kXKfdSuccess = 0,
  /** An argument is out of its range, a pointer is null, or a queue that is to be suspended runs no kernels. */
  kXKfdErrorInvalidValue = 1,
  /** There is no such session, process or queue, or the process does not use the driver. */
  kXKfdErrorNotFound = 2,
  /** The process may not be traced, its GPU work is being debugged already, or the device may not be used. */
  kXKfdErrorNoPermission = 3,
  /** The driver or the device cannot do that, or is not allowed to: it saves no waves, it has no debugger, the runtime
   * has not enabled debugging, or holding is switched off. */
  kXKfdErrorNotSupported = 4,
  /** The queue is new, or is being destroyed, and was left alone; or the session about another process was ended by somebody else,
   *  whereupon everything of it runs. */
  kXKfdErrorInvalidState = 5,
  /** The queue did not come off in the driver's time. The driver resets the GPU then, for every process. */
  kXKfdErrorTimeout = 6,
  /** The device did not save or restore what the queue runs; its state is not known. */
  kXKfdErrorSaveFailed = 7,
  /** The GPU is being reset, or has been and took this process's queues with it. */
  kXKfdErrorGpuHung = 8,
  /** Anything else. */
  kXKfdErrorUnknown = 999
} XKfdResult;

/** What a queue takes commands for. */
typedef enum { kXKfdQueueCompute = 0, kXKfdQueueSdma = 1, kXKfdQueueOther = 2 } XKfdQueueType;

/** Where a queue is. */
typedef enum {
  /** Not known: a request failed. */
  kXKfdQueueStateUnknown = 0,
  /** It may be on the hardware. */
  kXKfdQueueStateMapped = 1,
  /** It is off the hardware: in the calling process by whomever, in another one by this session. Who else keeps queues of
   * another process off is not seen. */
  kXKfdQueueStateSuspended = 2
} XKfdQueueState;

/** A hardware queue. */
typedef struct {
  /** Its number within its process. */
  uint32_t queue_id;
  /** The device's number in the driver. */
  uint32_t gpu_id;
  XKfdQueueType type;
  XKfdQueueState state;
  /** Address of its ring, and bytes of it. */
  uint64_t ring_address;
  uint64_t ring_size;
  /** Addresses of its write and read index in its process. */
  uint64_t write_pointer_address;
  uint64_t read_pointer_address;
} XKfdQueue;

/** Opens a session and writes it to *session.
 *
 * pid: the process; 0 or the calling process's number for the calling one.
 *
 * kXKfdErrorInvalidValue, kXKfdErrorNotFound, kXKfdErrorNoPermission, kXKfdErrorNotSupported. */
XKfdResult XKfdOpen(XKfdSession *session, int32_t pid);

/** Closes a session; everything that it has suspended goes on. Where that fails the result says why, and the session stays
 * open, so that it can be closed again. The end of another process is no failure.
 *
 * Any result. */
XKfdResult XKfdClose(XKfdSession session);

/** Writes the process's queues.
 *
 * queues: place for *count of them; null if *count is 0.
 * count: in, how many fit; out, how many there are, which may be more.
 *
 * kXKfdErrorInvalidValue, kXKfdErrorNotFound, or why the driver does not say. */
XKfdResult XKfdListQueues(XKfdSession session, XKfdQueue *queues, uint32_t *count);

/** Takes compute queues off the hardware. When it returns with success none of them runs.
 *
 * queue_ids: the queues; null with count 0 for all compute queues. One that copies is refused (kXKfdErrorInvalidValue). If one
 * of them fails, those that were suspended by this call are resumed, and the result says why the first one failed.
 *
 * Any result. */
XKfdResult XKfdSuspend(XKfdSession session, const uint32_t *queue_ids, uint32_t count);

/** Puts queues back.
 *
 * queue_ids: the queues; null with count 0 for all that this session has suspended and that are still there. All of them are
 * tried, and the result says why the first one failed.
 *
 * Any result. */
XKfdResult XKfdResume(XKfdSession session, const uint32_t *queue_ids, uint32_t count);

/** Writes where a queue is to *state.
 *
 * kXKfdErrorInvalidValue, kXKfdErrorNotFound. */
XKfdResult XKfdStatus(XKfdSession session, uint32_t queue_id, XKfdQueueState *state);

#ifdef __cplusplus
}
#endif

#endif
