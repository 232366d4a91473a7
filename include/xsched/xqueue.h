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

#include <stddef.h>

#include "xsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Puts an XQueue in front of a hardware queue and writes its handle to *xq.
 *
 * A hardware queue has one XQueue. If it has one already, for example because the environment gives every stream one
 * (XSCHED_AUTO_XQUEUE), *xq gets the handle of that one, and level has no effect: XQueueSetPreemptLevel changes it.
 *
 * level: a number of XPreemptLevel. Levels above 1 count under xserver, which suspends the whole process; with them it
 *   is taken off the hardware, where the driver saves running waves (docs/levels.md). XQueueSuspend suspends at level 1.
 * flags: bits of XQueueCreateFlag. Only kQueueCreateFlagNone is built.
 *
 * kXSchedErrorInvalidValue: xq is null, level is not 1, 2 or 3, or flags has a bit that is not a flag.
 * kXSchedErrorNotFound: there is no such hardware queue.
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
 * level: kPreemptLevelBlock, kPreemptLevelDeactivate or kPreemptLevelInterrupt.
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

/** Submits a command to an XQueue. A thread of the library calls its function in the command's turn, behind everything
 * that was submitted to the XQueue before and not while the XQueue is suspended. The command is then the XQueue's: its
 * handle can be given to XQueueWait, and to no other function.
 *
 * kXSchedErrorNotFound: there is no such XQueue, or no such command that is not submitted. */
XResult XQueueSubmit(XQueueHandle xq, HwCommandHandle hw_cmd);

/** Waits until a command that was submitted to this XQueue has completed: what its function has launched, and everything
 * before it. If more than 4096 commands were submitted since, it waits as XQueueWaitAll does. A command that was discarded
 * needs no waiting.
 *
 * kXSchedErrorHardware: work of the XQueue failed.
 * kXSchedErrorNotFound: there is no such XQueue, or the command is not submitted to it. */
XResult XQueueWait(XQueueHandle xq, HwCommandHandle hw_cmd);

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

/** Suspends the XQueue. Suspensions do not count: one call of XQueueResume ends them, and then the XQueue runs if its
 * scheduler lets it. At level 1 no further command begins to be launched after the call has
 * returned, save one that another thread was launching during the call and those that a running queue waits for;
 * commands in flight complete.
 *
 * flags: bits of XQueueSuspendFlag; other bits are ignored. kQueueSuspendFlagWaitAll and kQueueSuspendFlagWaitIdle wait
 *   before suspending. On an XQueue that is suspended already they have no effect.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueSuspend(XQueueHandle xq, int64_t flags);

/** Ends the suspension by XQueueSuspend; without one it changes nothing but what the flags say.
 *
 * flags: bits of XQueueResumeFlag; other bits are ignored.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueResume(XQueueHandle xq, int64_t flags);

/** Writes to *count how many commands were submitted to an XQueue since it was made or its stream was first used: by
 * XQueueSubmit and by HIP calls.
 *
 * kXSchedErrorInvalidValue: count is null.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueProfileHwCommandCount(XQueueHandle xq, int64_t *count);

/** What an XQueue has done, and how it is configured: XQueueStats. */
typedef struct {
  /** Commands since the XQueue was made or its stream was first used: launched by the submitting thread, and kept for later. */
  uint64_t direct, deferred;
  /** Commands that are not launched yet. */
  uint64_t pending;
  /** Commands that were launched, and of these those that are not known to have completed. */
  uint64_t launched, in_flight;
  /** How often the XQueue was suspended, by anybody, and for how many nanoseconds in all. */
  uint64_t suspensions, suspended_ns;
  /** Device time of completed commands in nanoseconds, as far as their times are known: an upper bound. */
  uint64_t device_ns;
  /** The largest number of commands in flight, and the batch size, as in XQueueSetLaunchConfig; 0 while the XQueue adapts. */
  int64_t threshold, batch_size;
  /** The priority that is in force, with parts (XHintBegin). */
  Priority priority;
  /** The requested level: a number of XPreemptLevel. */
  int32_t level;
  /** As XQueueQuery says: a number of XQueueState. */
  int32_t state;
  /** 1 if its commands may be launched now, 0 if it is suspended. */
  int32_t running;
} XQueueStatistics;

/** Writes what an XQueue has done to *stats. The numbers are read one after the other while the XQueue may go on.
 * giveway's own.
 *
 * size: sizeof(XQueueStatistics) as the program was compiled. A later version of the library has more fields at the end.
 *
 * kXSchedErrorInvalidValue: stats is null, or size is not one that a version of the library has had.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XQueueStats(XQueueHandle xq, XQueueStatistics *stats, size_t size);

/** Writes the handles of the XQueues of this process. giveway's own.
 *
 * queues: place for *count of them; may be null if *count is 0.
 * count: in, how many fit; out, how many there are, which may be more.
 *
 * kXSchedErrorInvalidValue: count is null, or queues is null and *count is not 0. */
XResult XQueueList(XQueueHandle *queues, size_t *count);

/** Forgets a hardware queue without an XQueue: call XQueueDestroy first. The stream that it wraps stays.
 *
 * kXSchedErrorNotAllowed: it has an XQueue.
 * kXSchedErrorNotFound: there is no such hardware queue. */
XResult HwQueueDestroy(HwQueueHandle hwq);

/** Calls the function of a command at once on this thread, whatever is suspended and however often. The command is not
 * submitted by this.
 *
 * Any result: what the function returned.
 * kXSchedErrorNotFound: there is no such hardware queue, or no such command that is not submitted. */
XResult HwQueueLaunch(HwQueueHandle hwq, HwCommandHandle hw_cmd);

/** Waits until everything launched on a hardware queue has completed. What its XQueue keeps is not waited for: that is
 * XQueueWaitAll.
 *
 * kXSchedErrorHardware: the work failed.
 * kXSchedErrorNotFound: there is no such hardware queue. */
XResult HwQueueSynchronize(HwQueueHandle hwq);

/** Makes a command of a function of the program, and writes its handle to *hw_cmd.
 *
 * launch: is called with the hardware queue and data when the command is to be launched. Its HIP calls go to the runtime at
 *   once. It may be called on any thread, must only launch work on the stream of this hardware queue, must not wait for
 *   the device, and must not call functions of this header. A result other than kXSchedSuccess counts as a failed
 *   launch. A command that is discarded (kQueueResumeFlagDropCommands) is never called.
 * data: must stay valid until then.
 *
 * kXSchedErrorInvalidValue: hw_cmd or launch is null.
 * kXSchedErrorHardware: the HIP runtime cannot be found, or reports an error. */
XResult HwCommandCreateCallback(HwCommandHandle *hw_cmd, LaunchCallback launch, void *data);

/** Forgets a command that is not submitted. A submitted one needs no call.
 *
 * kXSchedErrorNotFound: there is no such command that is not submitted. */
XResult HwCommandDestroy(HwCommandHandle hw_cmd);

#ifdef __cplusplus
}
#endif

#endif
