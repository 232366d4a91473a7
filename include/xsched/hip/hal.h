/* HIP streams as hardware queues. Part of giveway, an independent implementation of XSched's public interface. */
#ifndef XSCHED_HIP_HAL_H
#define XSCHED_HIP_HAL_H

#include "xsched/types.h"

/* Where the compiler compiles for HIP, a program may rely on this header for hipStream_t. Elsewhere the stream stays an
 * incomplete type, and HIP's headers, before or after this one, complete the picture. */
#if defined(__HIP_PLATFORM_AMD__) && defined(__has_include)
#if __has_include(<hip/hip_runtime_api.h>)
#include <hip/hip_runtime_api.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What hipStream_t points to. */
struct ihipStream_t;

/** Wraps a stream as a hardware queue and writes its handle to *hwq. Nothing changes for the stream until an XQueue is
 * put in front of it.
 *
 * stream: a hipStream_t. The null stream (0) and hipStreamPerThread are those of the calling thread's current device,
 *   the latter that of the calling thread. A stream that is wrapped already gives the same handle again.
 *
 * The stream must outlive the hardware queue: call HwQueueDestroy before hipStreamDestroy.
 *
 * kXSchedErrorInvalidValue: hwq is null, or stream is not a stream.
 * kXSchedErrorHardware: the HIP runtime cannot be found, or reports an error. */
XResult HipQueueCreate(HwQueueHandle *hwq, struct ihipStream_t *stream);

/** Writes the handle of the XQueue in front of a stream to *xq. It may exist automatically (XSCHED_AUTO_XQUEUE), or by
 * XQueueCreate. giveway's own.
 *
 * stream: as in HipQueueCreate.
 *
 * kXSchedErrorInvalidValue: xq is null, or stream is not a stream.
 * kXSchedErrorNotFound: the stream has no XQueue.
 * kXSchedErrorHardware: the HIP runtime cannot be found, or reports an error. */
XResult XQueueGetForStream(XQueueHandle *xq, struct ihipStream_t *stream);

#ifdef __cplusplus
}
#endif

#endif
