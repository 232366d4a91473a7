/* What a program tells its scheduler. Part of giveway, an independent implementation of XSched's public interface. */
#ifndef XSCHED_HINT_H
#define XSCHED_HINT_H

#include <stddef.h>

#include "xsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Chooses who decides for this process from now on; what the environment said no longer counts. Suspensions that the
 * scheduler before had made are taken back, those of XQueueSuspend stay.
 *
 * scheduler: a value of XSchedulerType. With kSchedulerGlobal and no server to be found, queues run unscheduled until
 *   there is one.
 * policy: a value of XPolicyType, for kSchedulerLocal; the others do not look at it.
 *
 * kXSchedErrorInvalidValue: a value that is none of its enumeration.
 * kXSchedErrorNotSupported: this build does not contain the policy. The scheduler in force stays. */
XResult XHintSetScheduler(XSchedulerType scheduler, XPolicyType policy);

/** Says how urgent an XQueue is from now on, for the policies that go by priority; the hint is gone with the queue.
 * Where xserver decides, a process counts with the highest priority of those of its queues that have work.
 *
 * prio: PRIORITY_MIN to PRIORITY_MAX, or PRIORITY_NO_EXECUTE.
 *
 * kXSchedErrorInvalidValue: prio is out of range.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintPriority(XQueueHandle xq, Priority prio);

/** Says which share of the device an XQueue is to have, relative to those of the others, for the policies that divide it by
 * shares. Where shares are those of processes, what was said last of any queue of the process counts.
 *
 * util: UTILIZATION_MIN to UTILIZATION_MAX.
 *
 * kXSchedErrorInvalidValue: util is out of range.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintUtilization(XQueueHandle xq, Utilization util);

/** Says which slice this process asks for, in microseconds, for the policies that take turns. The shortest that any process
 * asks for counts.
 *
 * us: TIMESLICE_MIN to TIMESLICE_MAX.
 *
 * kXSchedErrorInvalidValue: us is out of range. */
XResult XHintTimeslice(Timeslice us);

/** Says when an XQueue turns critical, for LAX: it has the priority lax_prio until us microseconds after it got work, then
 * crit_prio until it has none.
 *
 * us: 0 or more; NO_LAXITY takes the hint back, whatever the priorities.
 * lax_prio, crit_prio: as in XHintPriority.
 *
 * kXSchedErrorInvalidValue: a value is out of range.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintLaxity(XQueueHandle xq, Laxity us, Priority lax_prio, Priority crit_prio);

/** Says by when the work of an XQueue should be done, for KEDF and EDF: us microseconds after it got work.
 *
 * us: 0 or more (0 counts as 1); NO_DEADLINE takes the hint back.
 *
 * kXSchedErrorInvalidValue: us is out of range.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintDeadline(XQueueHandle xq, Deadline us);

/** Says how many of the earliest deadlines this process asks to let run at once, for KEDF. The highest number that any
 * process asks for counts.
 *
 * k: 1 or more.
 *
 * kXSchedErrorInvalidValue: k is 0. */
XResult XHintKDeadline(size_t k);

/** Says that work arrives on an XQueue in us microseconds, for the policies that clear the device ahead of time (LCBE). giveway's
 * own.
 *
 * us: 0 or more; -1 takes the hint back.
 *
 * kXSchedErrorInvalidValue: us is out of range.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintArrival(XQueueHandle xq, int64_t us);

/** Says whether an XQueue may be suspended while it has work, for the policies that heed it (LCBE). It may at first. giveway's
 * own.
 *
 * preemptible: 0 for no, anything else for yes.
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

/** Sets the class of an XQueue, for the policies that heed it (LCBE). A latency-critical queue counts in a class above
 * the limit critical-above, a best-effort queue in none above it, whatever their priorities. giveway's own.
 *
 * cls: a value of XQueueClass; kQueueClassNone takes the hint back, so that the priority alone decides.
 *
 * kXSchedErrorInvalidValue: a value that is none of its enumeration.
 * kXSchedErrorNotFound: there is no such XQueue. */
XResult XHintClass(XQueueHandle xq, XQueueClass cls);

/** Says which job this process belongs to, for GANG: the processes of one job run together or not at all. giveway's own.
 *
 * job: a number that the processes of the job share; 0 for none. */
XResult XHintJob(uint64_t job);

/** Says how much this process gets of a device at most, whether others want it or not, for CREDIT. Its utilization says what it
 * gets when others do. giveway's own.
 *
 * percent: 1 to 100; -1 takes the hint back.
 *
 * kXSchedErrorInvalidValue: percent is out of range. */
XResult XHintCap(int percent);

#ifdef __cplusplus
}
#endif

#endif
