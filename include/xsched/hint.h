/* Hints of a program to its scheduler. Part of giveway, an independent implementation of XSched's public
 * interface.
 *
 * A number out of range counts as the nearest one in range, and the log says so once for each function. A priority below
 * PRIORITY_NO_EXECUTE counts as PRIORITY_MIN.
 *
 * Each function with an XQueueHandle also takes XQUEUE_OF_NEW_STREAMS, unless it says otherwise. */
#ifndef XSCHED_HINT_H
#define XSCHED_HINT_H

#include <stddef.h>

#include "xsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** In place of an XQueue: the XQueues of the streams that the calling thread creates from now on. The hints for them override
 * those of the environment. They count for XQueues that exist automatically (XSCHED_AUTO_XQUEUE) and for those by
 * XQueueCreate on such a stream. A hint that is taken back leaves that of the environment in force. XHINT_KEEP takes
 * back priority, share and XHintPreemptible. giveway's own. */
#define XQUEUE_OF_NEW_STREAMS UINT64_MAX

/** Selects the scheduler of this process in place of the one that the environment named. Suspensions by the
 * previous scheduler end, those by XQueueSuspend stay.
 *
 * scheduler: a value of XSchedulerType. With kSchedulerGlobal and no server to be found, queues run unscheduled until
 *   there is one.
 * policy: a value of XPolicyType, for kSchedulerLocal; other schedulers ignore it.
 *
 * kXSchedErrorInvalidValue: a value is not in its enumeration.
 * kXSchedErrorNotSupported: this build does not contain the policy. The scheduler in force stays. */
XResult XHintSetScheduler(XSchedulerType scheduler, XPolicyType policy);

/** Sets the priority of an XQueue, for the policies that go by priority. The hint ends with the queue. Under
 * xserver a process has the highest priority of those of its queues that have work.
 *
 * prio: PRIORITY_MIN to PRIORITY_MAX, or PRIORITY_NO_EXECUTE.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintPriority(XQueueHandle xq, Priority prio);

/** Sets the share of an XQueue of the device, relative to the shares of others, for the policies that divide the
 * device by shares. Where processes have shares, the last hint for any queue of the process counts.
 *
 * util: UTILIZATION_MIN to UTILIZATION_MAX.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintUtilization(XQueueHandle xq, Utilization util);

/** Requests a slice for this process, in microseconds, for the policies that take turns. The shortest slice that
 * any process requests counts.
 *
 * us: TIMESLICE_MIN to TIMESLICE_MAX. TIMESLICE_UNLIMITED counts as TIMESLICE_MAX. */
XResult XHintTimeslice(Timeslice us);

/** Sets the time at which an XQueue becomes critical, for LAX: its priority is lax_prio until us microseconds
 * after it becomes ready, then crit_prio until it is idle.
 *
 * us: 0 or more; NO_LAXITY takes the hint back, whatever the priorities.
 * lax_prio, crit_prio: as in XHintPriority.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintLaxity(XQueueHandle xq, Laxity us, Priority lax_prio, Priority crit_prio);

/** Sets the deadline of an XQueue's work, for KEDF, EDF and SLO: us microseconds after it becomes ready.
 *
 * us: 0 or more (0 counts as 1); NO_DEADLINE takes the hint back.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintDeadline(XQueueHandle xq, Deadline us);

/** Requests that the k earliest deadlines run at once, for KEDF. The highest number that any process requests
 * counts.
 *
 * k: 1 or more. */
XResult XHintKDeadline(size_t k);

/** Announces work on an XQueue in us microseconds, for the policies that clear the device ahead of time (LCBE).
 * giveway's own.
 *
 * us: 0 or more; -1 takes the hint back.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintArrival(XQueueHandle xq, int64_t us);

/** Allows or forbids to suspend an XQueue while it has work, for the policies that support it (LCBE). Allowed at
 * first. giveway's own.
 *
 * preemptible: 0 forbids it, any other value allows it.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintPreemptible(XQueueHandle xq, int preemptible);

/** The class of an XQueue. giveway's own. */
typedef enum {
  kQueueClassNone = 0,
  /** Its work must start at once. */
  kQueueClassLatencyCritical = 1,
  /** Its work may wait. */
  kQueueClassBestEffort = 2
} XQueueClass;

/** Sets the class of an XQueue, for the policies that support it (LCBE). A latency-critical queue counts in a class
 * above the limit critical-above, a best-effort queue in none above it, whatever their priorities. giveway's own.
 *
 * cls: a value of XQueueClass; kQueueClassNone takes the hint back, so that the priority alone decides.
 *
 * kXSchedErrorInvalidValue: a value is not in its enumeration.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintClass(XQueueHandle xq, XQueueClass cls);

/** Sets the latency target of an XQueue's work: the class kQueueClassLatencyCritical, and a deadline of us microseconds after
 * the XQueue becomes ready. The same as XHintClass and XHintDeadline. giveway's own.
 *
 * us: 0 or more (0 counts as 1); NO_DEADLINE takes class and deadline back.
 *
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintSlo(XQueueHandle xq, Deadline us);

/** Hints for a part of a program: XHintBegin. */
typedef struct {
  /** As in XHintPriority, or XHINT_KEEP. */
  Priority priority;
  /** As in XHintClass; kQueueClassNone keeps the class of the XQueue. */
  XQueueClass cls;
  /** As in XHintDeadline; NO_DEADLINE keeps the deadline of the XQueue. */
  Deadline deadline;
} XHintSet;

/** In XHintSet: the priority of the XQueue stays. With XQUEUE_OF_NEW_STREAMS: the hint is taken back. */
#define XHINT_KEEP INT32_MIN

/** Begins a part of the program in which an XQueue has other hints, and writes the number of the part to *scope. The hints
 * count from now on until XHintEnd, and after it until everything that was submitted to the XQueue before XHintEnd has
 * completed. So they cover asynchronous work as well.
 *
 * Several threads can have parts on one XQueue, which may overlap in any way. While there are any, the XQueue has the highest
 * priority of all parts, the most urgent class, and the earliest deadline. The functions above change the hints that the
 * XQueue has without parts. giveway's own.
 *
 * xq: an XQueue, and not XQUEUE_OF_NEW_STREAMS.
 *
 * kXSchedErrorInvalidValue: hints or scope is null, or hints->cls is not in its enumeration.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintBegin(XQueueHandle xq, const XHintSet *hints, uint64_t *scope);

/** Ends a part of the program: see XHintBegin. It waits for nothing.
 *
 * kXSchedErrorNotFound: there is no such XQueue, or the part has ended. */
XResult XHintEnd(XQueueHandle xq, uint64_t scope);

/** Sets the job that this process belongs to, for GANG: the processes of one job run together or not at all.
 * giveway's own.
 *
 * job: a number that the processes of the job share; 0 for none. */
XResult XHintJob(uint64_t job);

/** Limits the share of a device that this process gets, whether others want it or not, for CREDIT. Its
 * utilization is its share while others want it. giveway's own.
 *
 * percent: 1 to 100; -1 takes the hint back. */
XResult XHintCap(int percent);

#ifdef __cplusplus
}
#endif

#endif
