/* XQueues and hardware queues. Part of giveway, an independent implementation of XSched's public interface.
 *
 * An XQueue stands in front of one hardware queue. A program submits work as it always did (on this platform: by HIP
 * calls on the stream that the hardware queue wraps); while the XQueue may run, the work is launched on the stream in
 * the order in which it was submitted, and while it is suspended, the work is kept.
 *
 * Every function may be called from any thread, but not from a callback that the HIP runtime runs. Unless said
 * otherwise a function waits for nothing on the device. Besides the results named with each function,
 * kXSchedErrorNotSupported means that the library is switched off in this process (XSCHED_DISABLE). */
#ifndef XSCHED_XQUEUE_H
#define XSCHED_XQUEUE_H

#include "xsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Puts an XQueue in front of a hardware queue and writes its handle to *xq.
 *
 * level: a number of XPreemptLevel. Levels above 1 count under xserver, which suspends the whole process; with them it
 *   is taken off the hardware, where the driver saves running waves (docs/levels.md). XQueueSuspend suspends at level 1.
 * flags: bits of XQueueCreateFlag. Only kQueueCreateFlagNone is built.
 *
 * kXSchedErrorInvalidValue: xq is null, level is not 1, 2 or 3, or flags has a bit that is not a flag.
 * kXSchedErrorNotFound: there is no such hardware queue.
 * kXSchedErrorNotAllowed: it has an XQueue already; XQueueGet tells which.
 * kXSchedErrorNotSupported: it is known that only level 1 can be in force here, or a flag is not built. */
XResult XQueueCreate(XQueueHandle *xq, HwQueueHandle hwq, int64_t level, int64_t flags);

/** Takes the XQueue away. Everything submitted is launched first, and this waits for that: suspensions of this queue
 * count no longer, but a process that xserver has suspended waits until it may run. The hardware queue stays, and what is
 * submitted from then on goes to the stream directly.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueDestroy(XQueueHandle xq);

/** Writes the handle of the XQueue in front of a hardware queue to *xq.
 *
 * kXSchedErrorInvalidValue: xq is null.
 * kXSchedErrorNotFound: there is no such hardware queue, or it has no XQueue. */
XResult XQueueGet(XQueueHandle *xq, HwQueueHandle hwq);

/** Chooses how deep a suspension of this XQueue reaches, from the next one on; for levels above 1 see XQueueCreate.
 *
 * kXSchedErrorInvalidValue: level is not 1, 2 or 3.
 * kXSchedErrorNotFound: there is no such XQueue.
 * kXSchedErrorNotSupported: it is known that only level 1 can be in force here; the one that was asked for before stays. */
XResult XQueueSetPreemptLevel(XQueueHandle xq, XPreemptLevel level);

/** Chooses how much of this XQueue may be in flight, from the next launch on.
 *
 * threshold: the most commands in flight, 1 to 2147483647; a value <= 0 keeps the present one.
 * batch_size: commands from one point at which completion is observed to the next, 1 to threshold; a value <= 0 keeps
 *   the present one, and one above the threshold counts as the threshold.
 *
 * As long as neither was ever set, by this function or by the environment, the queue adapts by itself to the length of
 * its commands. When one of them is set for the first time, the other becomes its default: threshold 16, batch size 8.
 * Small values make a suspension take effect sooner, large ones keep the device better supplied.
 *
 * kXSchedErrorInvalidValue: a value exceeds 2147483647.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueSetLaunchConfig(XQueueHandle xq, int64_t threshold, int64_t batch_size);

/** Waits until everything submitted before the call has completed. On a suspended XQueue with work that is not launched
 * that is after somebody has resumed it.
 *
 * kXSchedErrorHardware: the work failed.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueWaitAll(XQueueHandle xq);

/** Writes to *state whether the XQueue has work. A look without waiting; the answer may be out of date when it arrives.
 *
 * kXSchedErrorInvalidValue: state is null.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueQuery(XQueueHandle xq, XQueueState *state);

/** Suspends the XQueue once more: it runs again after as many calls of XQueueResume, and when the scheduler, whose
 * suspensions do not count here, lets it. At level 1 no further command begins to be launched after the call has
 * returned, save one that another thread was launching during the call and those that a running queue waits for;
 * commands in flight complete.
 *
 * flags: bits of XQueueSuspendFlag; other bits are ignored. kQueueSuspendFlagWaitAll and kQueueSuspendFlagWaitIdle wait
 *   before suspending: on an XQueue that is suspended already, with work that is not launched, until it is resumed.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueSuspend(XQueueHandle xq, int64_t flags);

/** Takes one suspension of XQueueSuspend back; without one it changes nothing but what the flags say.
 *
 * flags: bits of XQueueResumeFlag; other bits are ignored.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueResume(XQueueHandle xq, int64_t flags);

/** Forgets a hardware queue, and destroys its XQueue first if it has one. The stream that it wraps stays.
 *
 * kXSchedErrorNotFound: there is no such hardware queue. */
XResult HwQueueDestroy(HwQueueHandle hwq);

/** Waits until everything launched on a hardware queue has completed. What its XQueue keeps is not waited for: that is
 * XQueueWaitAll.
 *
 * kXSchedErrorHardware: the work failed.
 * kXSchedErrorNotFound: there is no such hardware queue. */
XResult HwQueueSynchronize(HwQueueHandle hwq);

#ifdef __cplusplus
}
#endif

#endif
