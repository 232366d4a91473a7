"""The functions of the C interface as static methods."""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from typing import Any, Callable, Optional

from giveway import _library
from giveway._types import XQueueState, XResult, result_of

# A function that launches a command: it gets the hardware queue and its data, and returns an XResult.
Launch = Callable[[int, Any], int]


def call(name: str, *arguments: Any) -> XResult:
    library = _library.find()
    if library is None:
        return XResult.kXSchedErrorNotSupported
    return result_of(library.call(name, *arguments))


def call_for_handle(name: str, *arguments: Any) -> tuple[XResult, int]:
    """Calls a function whose first argument is the place for a handle."""
    place = ctypes.c_uint64()
    if name == "XQueueGetForStream":
        # The package calls this one with objects of ctypes.
        arguments = tuple(ctypes.c_void_p(argument) for argument in arguments)
    result = call(name, ctypes.byref(place), *arguments)
    return result, place.value


class _Command:
    def __init__(self, launch: Launch, data: Any) -> None:
        self.launch = launch
        self.data = data
        # Set when it is submitted: it is called once then, and forgotten.
        self.once = False


_commands: dict[int, _Command] = {}
_keys_of_handles: dict[int, int] = {}
_keys = itertools.count(1)
_lock = threading.Lock()


def _launch_command(hardware_queue: int, key: Optional[int]) -> int:
    command = _commands.get(key or 0)
    if command is None:
        return int(XResult.kXSchedErrorNotFound)
    if command.once:
        _commands.pop(key or 0, None)
    try:
        return int(command.launch(hardware_queue, command.data))
    except Exception:
        sys.excepthook(*sys.exc_info())
        return int(XResult.kXSchedErrorUnknown)


# One C function for all commands. The library learns one time for them, as they have one function.
_launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(_launch_command)


class XSched:
    """The functions of xsched/xqueue.h and xsched/hint.h, which describe them."""

    @staticmethod
    def XQueueCreate(hwq: int, level: int, flags: int = 0) -> tuple[XResult, int]:
        return call_for_handle("XQueueCreate", hwq, level, flags)

    @staticmethod
    def XQueueDestroy(xq: int) -> XResult:
        return call("XQueueDestroy", xq)

    @staticmethod
    def XQueueGet(hwq: int) -> tuple[XResult, int]:
        return call_for_handle("XQueueGet", hwq)

    @staticmethod
    def XQueueSetPreemptLevel(xq: int, level: int) -> XResult:
        return call("XQueueSetPreemptLevel", xq, level)

    @staticmethod
    def XQueueSetLaunchConfig(xq: int, threshold: int, batch_size: int) -> XResult:
        return call("XQueueSetLaunchConfig", xq, threshold, batch_size)

    @staticmethod
    def XQueueSubmit(xq: int, hw_cmd: int) -> XResult:
        with _lock:
            key = _keys_of_handles.get(hw_cmd)
            command = None if key is None else _commands.get(key)
        if command is None:
            return call("XQueueSubmit", xq, hw_cmd)
        command.once = True
        result = call("XQueueSubmit", xq, hw_cmd)
        if result == XResult.kXSchedSuccess:
            with _lock:
                _keys_of_handles.pop(hw_cmd, None)
        else:
            command.once = False
        return result

    @staticmethod
    def XQueueWait(xq: int, hw_cmd: int) -> XResult:
        return call("XQueueWait", xq, hw_cmd)

    @staticmethod
    def XQueueWaitAll(xq: int) -> XResult:
        return call("XQueueWaitAll", xq)

    @staticmethod
    def XQueueQuery(xq: int) -> tuple[XResult, XQueueState]:
        state = ctypes.c_int()
        result = call("XQueueQuery", xq, ctypes.byref(state))
        return result, XQueueState(state.value)

    @staticmethod
    def XQueueSuspend(xq: int, flags: int = 0) -> XResult:
        return call("XQueueSuspend", xq, flags)

    @staticmethod
    def XQueueResume(xq: int, flags: int = 0) -> XResult:
        return call("XQueueResume", xq, flags)

    @staticmethod
    def XQueueProfileHwCommandCount(xq: int) -> tuple[XResult, int]:
        count = ctypes.c_int64()
        result = call("XQueueProfileHwCommandCount", xq, ctypes.byref(count))
        return result, count.value

    @staticmethod
    def HwQueueDestroy(hwq: int) -> XResult:
        return call("HwQueueDestroy", hwq)

    @staticmethod
    def HwQueueLaunch(hwq: int, hw_cmd: int) -> XResult:
        return call("HwQueueLaunch", hwq, hw_cmd)

    @staticmethod
    def HwQueueSynchronize(hwq: int) -> XResult:
        return call("HwQueueSynchronize", hwq)

    @staticmethod
    def HwCommandCreateCallback(launch: Launch, data: Any = None) -> tuple[XResult, int]:
        """`launch(hwq, data)` returns an XResult. An exception is printed, and counts as a failed launch."""
        if not callable(launch):
            raise TypeError(f"launch is a function, not {type(launch).__name__}")
        key = next(_keys)
        _commands[key] = _Command(launch, data)
        result, handle = call_for_handle("HwCommandCreateCallback", ctypes.cast(_launch, ctypes.c_void_p), key)
        if result == XResult.kXSchedSuccess:
            with _lock:
                _keys_of_handles[handle] = key
        else:
            del _commands[key]
        return result, handle

    @staticmethod
    def HwCommandDestroy(hw_cmd: int) -> XResult:
        result = call("HwCommandDestroy", hw_cmd)
        if result == XResult.kXSchedSuccess:
            with _lock:
                key = _keys_of_handles.pop(hw_cmd, None)
            if key is not None:
                _commands.pop(key, None)
        return result

    @staticmethod
    def XHintSetScheduler(scheduler: int, policy: int) -> XResult:
        return call("XHintSetScheduler", scheduler, policy)

    @staticmethod
    def XHintPriority(xq: int, prio: int) -> XResult:
        return call("XHintPriority", xq, prio)

    @staticmethod
    def XHintUtilization(xq: int, util: int) -> XResult:
        return call("XHintUtilization", xq, util)

    @staticmethod
    def XHintTimeslice(ts_us: int) -> XResult:
        return call("XHintTimeslice", ts_us)

    @staticmethod
    def XHintLaxity(xq: int, lax_us: int, lax_prio: int, crit_prio: int) -> XResult:
        return call("XHintLaxity", xq, lax_us, lax_prio, crit_prio)

    @staticmethod
    def XHintDeadline(xq: int, ddl_us: int) -> XResult:
        return call("XHintDeadline", xq, ddl_us)

    @staticmethod
    def XHintKDeadline(k: int) -> XResult:
        return call("XHintKDeadline", k)

    # giveway's own.

    @staticmethod
    def XHintArrival(xq: int, us: int) -> XResult:
        return call("XHintArrival", xq, us)

    @staticmethod
    def XHintPreemptible(xq: int, preemptible: int) -> XResult:
        return call("XHintPreemptible", xq, preemptible)

    @staticmethod
    def XHintClass(xq: int, cls: int) -> XResult:
        return call("XHintClass", xq, cls)

    @staticmethod
    def XHintSlo(xq: int, us: int) -> XResult:
        return call("XHintSlo", xq, us)

    @staticmethod
    def XHintJob(job: int) -> XResult:
        return call("XHintJob", job)

    @staticmethod
    def XHintCap(percent: int) -> XResult:
        return call("XHintCap", percent)
