/* Handles, numbers and enumerations of the C interface. Part of giveway, an independent implementation of XSched's
 * public interface. */
#ifndef XSCHED_TYPES_H
#define XSCHED_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* ---- Handles ----------------------------------------------------------------------------------------------------
 * Numbers that name objects of the calling process. 0 names nothing. */

/** An XQueue: a queue that a scheduler can suspend, in front of one hardware queue. */
typedef uint64_t XQueueHandle;
/** A hardware queue: on this platform a HIP stream on one device. */
typedef uint64_t HwQueueHandle;
/** A command for a hardware queue: HwCommandCreateCallback. */
typedef uint64_t HwCommandHandle;
/** A device: its XDeviceType and its XDeviceId in one number. */
typedef uint64_t XDevice;
/** A device among those of its type: its PCI address. */
typedef uint32_t XDeviceId;

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/** What every function returns. On any result but kXSchedSuccess, nothing has been written through pointers. */
typedef enum {
  kXSchedSuccess = 0,
  /** The HIP runtime or the device reported an error. */
  kXSchedErrorHardware = 1,
  /** An argument is out of its range, or a pointer is null. */
  kXSchedErrorInvalidValue = 2,
  /** A handle names nothing, or nothing any more. */
  kXSchedErrorNotFound = 3,
  /** The object is not in a state that permits it. */
  kXSchedErrorNotAllowed = 4,
  /** Not in this build, or not on this device. */
  kXSchedErrorNotSupported = 5,
  /** The scheduler's answer makes no sense. */
  kXSchedErrorBadResponse = 6,
  kXSchedErrorUnknown = 999
} XResult;

/** A function of the program that launches a command on a hardware queue; see HwCommandCreateCallback. */
typedef XResult (*LaunchCallback)(HwQueueHandle hwq, void *data);

/* ---- Queues ----------------------------------------------------------------------------------------------------- */

/** How deep a suspension reaches. */
typedef enum {
  kPreemptLevelUnknown = 0,
  /** Level 1: no further command is launched. Commands that were launched before complete; the queue keeps so few of
   * them in flight that a suspension takes effect soon. Needs no privilege and works on every device. */
  kPreemptLevelBlock = 1,
  /** Level 2: commands that were launched but have not started do not start either. */
  kPreemptLevelDeactivate = 2,
  /** Level 3: the running command is interrupted, and continues later. */
  kPreemptLevelInterrupt = 3,
  /** One more than the deepest level. */
  kPreemptLevelMax = 4
} XPreemptLevel;

/** Whether a queue has work. */
typedef enum {
  kQueueStateUnknown = 0,
  /** Everything submitted has completed. */
  kQueueStateIdle = 1,
  /** Something submitted has not completed, or is not known to have. */
  kQueueStateReady = 2
} XQueueState;

/** What an XQueue can do; bits. */
typedef enum {
  kQueueFeatureNone = 0x0,
  kQueueFeatureAsyncSubmit = 0x1,
  kQueueFeatureDynamicLevel = 0x2,
  kQueueFeatureDynamicThreshold = 0x4,
  kQueueFeatureDynamicBatchSize = 0x8,
  kQueueFeatureSyncSuspend = 0x10,
  kQueueFeatureResumeDropCommands = 0x20,
  kQueueFeatureMaskAll = -1
} XQueueFeature;

/** Flags of XQueueCreate; bits. */
typedef enum {
  kQueueCreateFlagNone = 0x0,
  /** A submission returns only when its command is launched. */
  kQueueCreateFlagBlockingSubmit = 0x1,
  kQueueCreateFlagMaskAll = -1
} XQueueCreateFlag;

/** Flags of XQueueSuspend; bits. Each of them makes the call wait. */
typedef enum {
  kQueueSuspendFlagNone = 0x0,
  /** Suspend, then wait until everything launched has completed. */
  kQueueSuspendFlagSyncHwQueue = 0x1,
  /** Wait until everything submitted before the call has completed, then suspend. */
  kQueueSuspendFlagWaitAll = 0x2,
  /** Wait until the queue is idle, then suspend. */
  kQueueSuspendFlagWaitIdle = 0x4,
  kQueueSuspendFlagMaskAll = -1
} XQueueSuspendFlag;

/** Flags of XQueueResume; bits. */
typedef enum {
  kQueueResumeFlagNone = 0x0,
  /** What is submitted and not launched is discarded, and never runs. What is in flight completes. */
  kQueueResumeFlagDropCommands = 0x1,
  kQueueResumeFlagMaskAll = -1
} XQueueResumeFlag;

/* ---- Devices ---------------------------------------------------------------------------------------------------- */

/** The kind of runtime that commands go to. Others than HIP do not exist here: XSched has numbers for them. */
typedef enum {
  kPlatformUnknown = 0,
  kPlatformVPI = 1,
  kPlatformCUDA = 2,
  kPlatformCUDLA = 3,
  kPlatformHIP = 4,
  kPlatformAscend = 5,
  kPlatformOpenCL = 6,
  kPlatformLevelZero = 7
} XPlatform;

/** The kind of a device. */
typedef enum {
  kDeviceTypeUnknown = 0,
  kDeviceTypeCPU = 1,
  kDeviceTypeGPU = 2,
  kDeviceTypeNPU = 3,
  kDeviceTypeFPGA = 4,
  kDeviceTypeASIC = 5,
  /** A copy engine. */
  kDeviceTypeMCA = 6
} XDeviceType;

/* ---- Scheduling ------------------------------------------------------------------------------------------------- */

/** Who decides which queues run. */
typedef enum {
  kSchedulerUnknown = 0,
  /** The application, by XQueueSuspend and XQueueResume. */
  kSchedulerAppManaged = 1,
  /** A policy inside the process. */
  kSchedulerLocal = 2,
  /** The daemon xserver, for all processes together. */
  kSchedulerGlobal = 3,
  /** One more than the last scheduler. */
  kSchedulerMax = 4
} XSchedulerType;

/** How it is decided. A build need not contain every policy that has a number. */
typedef enum {
  kPolicyUnknown = 0,
  /** HPF: on each device, everything of the highest priority that has work runs, and the rest is suspended. */
  kPolicyHighestPriorityFirst = 1,
  /** HHPF: the same over all devices together. */
  kPolicyHeterogeneousHighestPriorityFirst = 2,
  /** CHPF: the priority is that of the process on the CPU. */
  kPolicyCPUHighestPriorityFirst = 3,
  /** UP: queues take turns, for times in the ratio of their utilization. */
  kPolicyUtilizationPartition = 4,
  /** PUP: processes take turns. */
  kPolicyProcessUtilizationPartition = 5,
  /** SPUP: processes take turns, and unused time stays unused. */
  kPolicyStrictProcessUtilizationPartition = 6,
  /** KEDF: the k earliest deadlines run. */
  kPolicyKEarliestDeadlineFirst = 7,
  /** LAX: a queue turns critical when it has waited for its laxity. */
  kPolicyLaxity = 8,
  /** AWF: the process that owns the active window first. */
  kPolicyActiveWindowFirst = 9,
  /** CFS: the smallest virtual running time first. */
  kPolicyCompletelyFairScheduler = 10,
  /** MLFQ: queues that use up their slices sink in level. */
  kPolicyMultiLevelFeedbackQueue = 11,
  /** One more than the last of XSched's policies. */
  kPolicyMax = 12,
  /* Those from here on are giveway's own. */
  /** LCBE: latency-critical classes before best effort, and the device cleared for work that is expected. */
  kPolicyLatencyCriticalBestEffort = 101,
  /** EDF: the priority rises as the slack before the deadline shrinks. */
  kPolicyEarliestDeadlineFirst = 102,
  /** SLO: as much best effort as a latency target of the critical work allows. */
  kPolicyServiceLevelObjective = 103,
  /** CREDIT: weights and caps, and a boost for those that wake up. */
  kPolicyCredit = 104,
  /** FAIR: weighted shares. */
  kPolicyFairShare = 105,
  /** GANG: the processes of a job run together or not at all. */
  kPolicyGang = 106,
  /** POWER: best effort within a power budget. */
  kPolicyPowerBudget = 107
} XPolicyType;

/** How urgent a queue is: PRIORITY_MIN to PRIORITY_MAX, bigger is more urgent; or PRIORITY_NO_EXECUTE. */
typedef int32_t Priority;
/** A queue of this priority never runs. */
#define PRIORITY_NO_EXECUTE (-256)
#define PRIORITY_MIN (-255)
#define PRIORITY_DEFAULT 0
#define PRIORITY_MAX 255

/** A share of the device in percent: UTILIZATION_MIN to UTILIZATION_MAX. */
typedef int32_t Utilization;
#define UTILIZATION_MIN 0
#define UTILIZATION_DEFAULT 100
#define UTILIZATION_MAX 100

/** A slice in microseconds: TIMESLICE_MIN to TIMESLICE_MAX. */
typedef int64_t Timeslice;
#define TIMESLICE_MIN 100
#define TIMESLICE_DEFAULT 5000
#define TIMESLICE_MAX 10000000
/** No slice ends: the policies that take turns use TIMESLICE_MAX. */
#define TIMESLICE_UNLIMITED UINT64_MAX

/** How long a queue may wait before it turns critical, in microseconds; or NO_LAXITY. */
typedef int64_t Laxity;
#define NO_LAXITY (-1)

/** Microseconds from the moment a queue has work to its deadline; or NO_DEADLINE. */
typedef int64_t Deadline;
#define NO_DEADLINE (-1)

#endif
