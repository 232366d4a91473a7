"""The constants of XSched's headers under their own names."""

from __future__ import annotations

import enum

from giveway._types import (
    NO_DEADLINE,
    NO_LAXITY,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PRIORITY_NO_EXECUTE,
    TIMESLICE_DEFAULT,
    TIMESLICE_MAX,
    TIMESLICE_MIN,
    TIMESLICE_UNLIMITED,
    UTILIZATION_DEFAULT,
    UTILIZATION_MAX,
    UTILIZATION_MIN,
    XPolicyType,
    XPreemptLevel,
    XQueueClass,
    XQueueCreateFlag,
    XQueueFeature,
    XQueueResumeFlag,
    XQueueState,
    XQueueSuspendFlag,
    XResult,
    XSchedulerType,
)

# The types of the headers, which programs use in annotations.
XDevice = int
XDeviceId = int
XQueueHandle = int
HwQueueHandle = int
HwCommandHandle = int
Priority = int
Utilization = int
Timeslice = int
Laxity = int
Deadline = int

# In C these are enumerators with all bits set.
kQueueFeatureMaskAll = -1
kQueueCreateFlagMaskAll = -1
kQueueSuspendFlagMaskAll = -1
kQueueResumeFlagMaskAll = -1


class XPlatform(enum.IntEnum):
    kPlatformUnknown = 0
    kPlatformVPI = 1
    kPlatformCUDA = 2
    kPlatformCUDLA = 3
    kPlatformHIP = 4
    kPlatformAscend = 5
    kPlatformOpenCL = 6
    kPlatformLevelZero = 7


class XDeviceType(enum.IntEnum):
    kDeviceTypeUnknown = 0
    kDeviceTypeCPU = 1
    kDeviceTypeGPU = 2
    kDeviceTypeNPU = 3
    kDeviceTypeFPGA = 4
    kDeviceTypeASIC = 5
    kDeviceTypeMCA = 6


kXSchedSuccess = XResult.kXSchedSuccess
kXSchedErrorHardware = XResult.kXSchedErrorHardware
kXSchedErrorInvalidValue = XResult.kXSchedErrorInvalidValue
kXSchedErrorNotFound = XResult.kXSchedErrorNotFound
kXSchedErrorNotAllowed = XResult.kXSchedErrorNotAllowed
kXSchedErrorNotSupported = XResult.kXSchedErrorNotSupported
kXSchedErrorBadResponse = XResult.kXSchedErrorBadResponse
kXSchedErrorUnknown = XResult.kXSchedErrorUnknown

kPreemptLevelUnknown = XPreemptLevel.kPreemptLevelUnknown
kPreemptLevelBlock = XPreemptLevel.kPreemptLevelBlock
kPreemptLevelDeactivate = XPreemptLevel.kPreemptLevelDeactivate
kPreemptLevelInterrupt = XPreemptLevel.kPreemptLevelInterrupt
kPreemptLevelMax = XPreemptLevel.kPreemptLevelMax

kQueueStateUnknown = XQueueState.kQueueStateUnknown
kQueueStateIdle = XQueueState.kQueueStateIdle
kQueueStateReady = XQueueState.kQueueStateReady

kQueueFeatureNone = XQueueFeature.kQueueFeatureNone
kQueueFeatureAsyncSubmit = XQueueFeature.kQueueFeatureAsyncSubmit
kQueueFeatureDynamicLevel = XQueueFeature.kQueueFeatureDynamicLevel
kQueueFeatureDynamicThreshold = XQueueFeature.kQueueFeatureDynamicThreshold
kQueueFeatureDynamicBatchSize = XQueueFeature.kQueueFeatureDynamicBatchSize
kQueueFeatureSyncSuspend = XQueueFeature.kQueueFeatureSyncSuspend
kQueueFeatureResumeDropCommands = XQueueFeature.kQueueFeatureResumeDropCommands

kQueueCreateFlagNone = XQueueCreateFlag.kQueueCreateFlagNone
kQueueCreateFlagBlockingSubmit = XQueueCreateFlag.kQueueCreateFlagBlockingSubmit

kQueueSuspendFlagNone = XQueueSuspendFlag.kQueueSuspendFlagNone
kQueueSuspendFlagSyncHwQueue = XQueueSuspendFlag.kQueueSuspendFlagSyncHwQueue
kQueueSuspendFlagWaitAll = XQueueSuspendFlag.kQueueSuspendFlagWaitAll
kQueueSuspendFlagWaitIdle = XQueueSuspendFlag.kQueueSuspendFlagWaitIdle

kQueueResumeFlagNone = XQueueResumeFlag.kQueueResumeFlagNone
kQueueResumeFlagDropCommands = XQueueResumeFlag.kQueueResumeFlagDropCommands

kSchedulerUnknown = XSchedulerType.kSchedulerUnknown
kSchedulerAppManaged = XSchedulerType.kSchedulerAppManaged
kSchedulerLocal = XSchedulerType.kSchedulerLocal
kSchedulerGlobal = XSchedulerType.kSchedulerGlobal
kSchedulerMax = XSchedulerType.kSchedulerMax

kPolicyUnknown = XPolicyType.kPolicyUnknown
kPolicyHighestPriorityFirst = XPolicyType.kPolicyHighestPriorityFirst
kPolicyHeterogeneousHighestPriorityFirst = XPolicyType.kPolicyHeterogeneousHighestPriorityFirst
kPolicyCPUHighestPriorityFirst = XPolicyType.kPolicyCPUHighestPriorityFirst
kPolicyUtilizationPartition = XPolicyType.kPolicyUtilizationPartition
kPolicyProcessUtilizationPartition = XPolicyType.kPolicyProcessUtilizationPartition
kPolicyStrictProcessUtilizationPartition = XPolicyType.kPolicyStrictProcessUtilizationPartition
kPolicyKEarliestDeadlineFirst = XPolicyType.kPolicyKEarliestDeadlineFirst
kPolicyLaxity = XPolicyType.kPolicyLaxity
kPolicyActiveWindowFirst = XPolicyType.kPolicyActiveWindowFirst
kPolicyCompletelyFairScheduler = XPolicyType.kPolicyCompletelyFairScheduler
kPolicyMultiLevelFeedbackQueue = XPolicyType.kPolicyMultiLevelFeedbackQueue
kPolicyMax = XPolicyType.kPolicyMax
kPolicyLatencyCriticalBestEffort = XPolicyType.kPolicyLatencyCriticalBestEffort
kPolicyEarliestDeadlineFirst = XPolicyType.kPolicyEarliestDeadlineFirst
kPolicyServiceLevelObjective = XPolicyType.kPolicyServiceLevelObjective
kPolicyCredit = XPolicyType.kPolicyCredit
kPolicyFairShare = XPolicyType.kPolicyFairShare
kPolicyGang = XPolicyType.kPolicyGang
kPolicyPowerBudget = XPolicyType.kPolicyPowerBudget

kQueueClassNone = XQueueClass.kQueueClassNone
kQueueClassLatencyCritical = XQueueClass.kQueueClassLatencyCritical
kQueueClassBestEffort = XQueueClass.kQueueClassBestEffort

kPlatformUnknown = XPlatform.kPlatformUnknown
kPlatformVPI = XPlatform.kPlatformVPI
kPlatformCUDA = XPlatform.kPlatformCUDA
kPlatformCUDLA = XPlatform.kPlatformCUDLA
kPlatformHIP = XPlatform.kPlatformHIP
kPlatformAscend = XPlatform.kPlatformAscend
kPlatformOpenCL = XPlatform.kPlatformOpenCL
kPlatformLevelZero = XPlatform.kPlatformLevelZero

kDeviceTypeUnknown = XDeviceType.kDeviceTypeUnknown
kDeviceTypeCPU = XDeviceType.kDeviceTypeCPU
kDeviceTypeGPU = XDeviceType.kDeviceTypeGPU
kDeviceTypeNPU = XDeviceType.kDeviceTypeNPU
kDeviceTypeFPGA = XDeviceType.kDeviceTypeFPGA
kDeviceTypeASIC = XDeviceType.kDeviceTypeASIC
kDeviceTypeMCA = XDeviceType.kDeviceTypeMCA

__all__ = [
    "NO_DEADLINE",
    "NO_LAXITY",
    "PRIORITY_DEFAULT",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "PRIORITY_NO_EXECUTE",
    "TIMESLICE_DEFAULT",
    "TIMESLICE_MAX",
    "TIMESLICE_MIN",
    "TIMESLICE_UNLIMITED",
    "UTILIZATION_DEFAULT",
    "UTILIZATION_MAX",
    "UTILIZATION_MIN",
    "Deadline",
    "HwCommandHandle",
    "HwQueueHandle",
    "Laxity",
    "Priority",
    "Timeslice",
    "Utilization",
    "XDevice",
    "XDeviceId",
    "XDeviceType",
    "XPlatform",
    "XPolicyType",
    "XPreemptLevel",
    "XQueueClass",
    "XQueueCreateFlag",
    "XQueueFeature",
    "XQueueHandle",
    "XQueueResumeFlag",
    "XQueueState",
    "XQueueSuspendFlag",
    "XResult",
    "XSchedulerType",
    "kDeviceTypeASIC",
    "kDeviceTypeCPU",
    "kDeviceTypeFPGA",
    "kDeviceTypeGPU",
    "kDeviceTypeMCA",
    "kDeviceTypeNPU",
    "kDeviceTypeUnknown",
    "kPlatformAscend",
    "kPlatformCUDA",
    "kPlatformCUDLA",
    "kPlatformHIP",
    "kPlatformLevelZero",
    "kPlatformOpenCL",
    "kPlatformUnknown",
    "kPlatformVPI",
    "kPolicyActiveWindowFirst",
    "kPolicyCPUHighestPriorityFirst",
    "kPolicyCompletelyFairScheduler",
    "kPolicyCredit",
    "kPolicyEarliestDeadlineFirst",
    "kPolicyFairShare",
    "kPolicyGang",
    "kPolicyHeterogeneousHighestPriorityFirst",
    "kPolicyHighestPriorityFirst",
    "kPolicyKEarliestDeadlineFirst",
    "kPolicyLatencyCriticalBestEffort",
    "kPolicyLaxity",
    "kPolicyMax",
    "kPolicyMultiLevelFeedbackQueue",
    "kPolicyPowerBudget",
    "kPolicyProcessUtilizationPartition",
    "kPolicyServiceLevelObjective",
    "kPolicyStrictProcessUtilizationPartition",
    "kPolicyUnknown",
    "kPolicyUtilizationPartition",
    "kPreemptLevelBlock",
    "kPreemptLevelDeactivate",
    "kPreemptLevelInterrupt",
    "kPreemptLevelMax",
    "kPreemptLevelUnknown",
    "kQueueClassBestEffort",
    "kQueueClassLatencyCritical",
    "kQueueClassNone",
    "kQueueCreateFlagBlockingSubmit",
    "kQueueCreateFlagMaskAll",
    "kQueueCreateFlagNone",
    "kQueueFeatureAsyncSubmit",
    "kQueueFeatureDynamicBatchSize",
    "kQueueFeatureDynamicLevel",
    "kQueueFeatureDynamicThreshold",
    "kQueueFeatureMaskAll",
    "kQueueFeatureNone",
    "kQueueFeatureResumeDropCommands",
    "kQueueFeatureSyncSuspend",
    "kQueueResumeFlagDropCommands",
    "kQueueResumeFlagMaskAll",
    "kQueueResumeFlagNone",
    "kQueueStateIdle",
    "kQueueStateReady",
    "kQueueStateUnknown",
    "kQueueSuspendFlagMaskAll",
    "kQueueSuspendFlagNone",
    "kQueueSuspendFlagSyncHwQueue",
    "kQueueSuspendFlagWaitAll",
    "kQueueSuspendFlagWaitIdle",
    "kSchedulerAppManaged",
    "kSchedulerGlobal",
    "kSchedulerLocal",
    "kSchedulerMax",
    "kSchedulerUnknown",
    "kXSchedErrorBadResponse",
    "kXSchedErrorHardware",
    "kXSchedErrorInvalidValue",
    "kXSchedErrorNotAllowed",
    "kXSchedErrorNotFound",
    "kXSchedErrorNotSupported",
    "kXSchedErrorUnknown",
    "kXSchedSuccess",
]
