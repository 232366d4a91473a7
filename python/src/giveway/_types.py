"""Numbers and structures of the C interface (include/xsched), and the package's errors."""

from __future__ import annotations

import ctypes
import enum
from typing import Optional


class XResult(enum.IntEnum):
    """What every function of the C interface returns."""

    kXSchedSuccess = 0
    kXSchedErrorHardware = 1
    kXSchedErrorInvalidValue = 2
    kXSchedErrorNotFound = 3
    kXSchedErrorNotAllowed = 4
    kXSchedErrorNotSupported = 5
    kXSchedErrorBadResponse = 6
    kXSchedErrorUnknown = 999


class XPreemptLevel(enum.IntEnum):
    kPreemptLevelUnknown = 0
    kPreemptLevelBlock = 1
    kPreemptLevelDeactivate = 2
    kPreemptLevelInterrupt = 3
    kPreemptLevelMax = 4


class XQueueState(enum.IntEnum):
    kQueueStateUnknown = 0
    kQueueStateIdle = 1
    kQueueStateReady = 2


class XQueueFeature(enum.IntFlag):
    kQueueFeatureNone = 0x0
    kQueueFeatureAsyncSubmit = 0x1
    kQueueFeatureDynamicLevel = 0x2
    kQueueFeatureDynamicThreshold = 0x4
    kQueueFeatureDynamicBatchSize = 0x8
    kQueueFeatureSyncSuspend = 0x10
    kQueueFeatureResumeDropCommands = 0x20


class XQueueCreateFlag(enum.IntFlag):
    kQueueCreateFlagNone = 0x0
    kQueueCreateFlagBlockingSubmit = 0x1


class XQueueSuspendFlag(enum.IntFlag):
    kQueueSuspendFlagNone = 0x0
    kQueueSuspendFlagSyncHwQueue = 0x1
    kQueueSuspendFlagWaitAll = 0x2
    kQueueSuspendFlagWaitIdle = 0x4


class XQueueResumeFlag(enum.IntFlag):
    kQueueResumeFlagNone = 0x0
    kQueueResumeFlagDropCommands = 0x1


class XSchedulerType(enum.IntEnum):
    kSchedulerUnknown = 0
    kSchedulerAppManaged = 1
    kSchedulerLocal = 2
    kSchedulerGlobal = 3
    kSchedulerMax = 4


class XPolicyType(enum.IntEnum):
    kPolicyUnknown = 0
    kPolicyHighestPriorityFirst = 1
    kPolicyHeterogeneousHighestPriorityFirst = 2
    kPolicyCPUHighestPriorityFirst = 3
    kPolicyUtilizationPartition = 4
    kPolicyProcessUtilizationPartition = 5
    kPolicyStrictProcessUtilizationPartition = 6
    kPolicyKEarliestDeadlineFirst = 7
    kPolicyLaxity = 8
    kPolicyActiveWindowFirst = 9
    kPolicyCompletelyFairScheduler = 10
    kPolicyMultiLevelFeedbackQueue = 11
    kPolicyMax = 12
    kPolicyLatencyCriticalBestEffort = 101
    kPolicyEarliestDeadlineFirst = 102
    kPolicyServiceLevelObjective = 103
    kPolicyCredit = 104
    kPolicyFairShare = 105
    kPolicyGang = 106
    kPolicyPowerBudget = 107


class XQueueClass(enum.IntEnum):
    kQueueClassNone = 0
    kQueueClassLatencyCritical = 1
    kQueueClassBestEffort = 2


# The names that `xcli policy` uses.
POLICIES = {
    "HPF": XPolicyType.kPolicyHighestPriorityFirst,
    "HHPF": XPolicyType.kPolicyHeterogeneousHighestPriorityFirst,
    "CHPF": XPolicyType.kPolicyCPUHighestPriorityFirst,
    "UP": XPolicyType.kPolicyUtilizationPartition,
    "PUP": XPolicyType.kPolicyProcessUtilizationPartition,
    "SPUP": XPolicyType.kPolicyStrictProcessUtilizationPartition,
    "KEDF": XPolicyType.kPolicyKEarliestDeadlineFirst,
    "LAX": XPolicyType.kPolicyLaxity,
    "AWF": XPolicyType.kPolicyActiveWindowFirst,
    "CFS": XPolicyType.kPolicyCompletelyFairScheduler,
    "MLFQ": XPolicyType.kPolicyMultiLevelFeedbackQueue,
    "LCBE": XPolicyType.kPolicyLatencyCriticalBestEffort,
    "EDF": XPolicyType.kPolicyEarliestDeadlineFirst,
    "SLO": XPolicyType.kPolicyServiceLevelObjective,
    "CREDIT": XPolicyType.kPolicyCredit,
    "FAIR": XPolicyType.kPolicyFairShare,
    "GANG": XPolicyType.kPolicyGang,
    "POWER": XPolicyType.kPolicyPowerBudget,
}

PRIORITY_NO_EXECUTE = -256
PRIORITY_MIN = -255
PRIORITY_DEFAULT = 0
PRIORITY_MAX = 255
UTILIZATION_MIN = 0
UTILIZATION_DEFAULT = 100
UTILIZATION_MAX = 100
TIMESLICE_MIN = 100
TIMESLICE_DEFAULT = 5000
TIMESLICE_MAX = 10_000_000
TIMESLICE_UNLIMITED = 2**64 - 1
NO_LAXITY = -1
NO_DEADLINE = -1
NO_ARRIVAL = -1
HINT_KEEP = -(2**31)
QUEUE_OF_NEW_STREAMS = 2**64 - 1

INT64_MAX = 2**63 - 1


class HintSet(ctypes.Structure):
    """XHintSet."""

    _fields_ = [("priority", ctypes.c_int32), ("cls", ctypes.c_int), ("deadline", ctypes.c_int64)]


class QueueStatistics(ctypes.Structure):
    """XQueueStatistics."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("direct", "deferred", "pending", "launched", "in_flight")),
        *((name, ctypes.c_uint64) for name in ("suspensions", "suspended_ns", "device_ns")),
        *((name, ctypes.c_int64) for name in ("threshold", "batch_size")),
        *((name, ctypes.c_int32) for name in ("priority", "level", "state", "running")),
    ]


_MEANINGS = {
    XResult.kXSchedErrorHardware: "the HIP runtime or the device reported an error",
    XResult.kXSchedErrorInvalidValue: "an argument is out of its range",
    XResult.kXSchedErrorNotFound: "there is no such queue, or no longer",
    XResult.kXSchedErrorNotAllowed: "the queue is not in a state that permits it",
    XResult.kXSchedErrorNotSupported: "not in this build, or not on this device",
    XResult.kXSchedErrorBadResponse: "the scheduler's answer makes no sense",
}


def result_of(number: int) -> XResult:
    """Returns the result of this number. One that this package does not know counts as kXSchedErrorUnknown."""
    try:
        return XResult(number)
    except ValueError:
        return XResult.kXSchedErrorUnknown


class GivewayError(RuntimeError):
    """A function of the library failed; `code` says why."""

    def __init__(self, code: int, message: Optional[str] = None) -> None:
        self.code = result_of(code)
        super().__init__(message or f"{_MEANINGS.get(self.code, 'unknown error')} ({self.code.name})")

    def __reduce__(self) -> tuple[type[GivewayError], tuple[int, str]]:
        return type(self), (int(self.code), str(self))


class ServerError(GivewayError):
    """The server does not answer or refuses, or xcli cannot ask it."""


class GivewayWarning(UserWarning):
    """The package does nothing in this process, and why."""
