/* What a program tells its scheduler. Part of giveway, an independent implementation of XSched's public interface. */
#ifndef XSCHED_HINT_H
#define XSCHED_HINT_H

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

#ifdef __cplusplus
}
#endif

#endif
