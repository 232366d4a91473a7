"""The preloaded library: finds it, says once if it is missing, and declares its functions."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from typing import Any, Callable, Optional

from ._types import GivewayError, GivewayWarning, XResult

# Short functions keep the interpreter's lock (PyDLL). Giving it up would let a busy thread keep the caller waiting for a
# switch interval, 5 ms. They take no lock that the library holds while it calls Python.
_SHORT = ("XHintBegin", "XHintEnd", "XQueueGetForStream", "XQueueStats", "XQueueList", "XQueueQuery")
# Those without declared argument types get objects of ctypes, which is twice as fast.
_UNDECLARED = ("XHintBegin", "XHintEnd", "XQueueGetForStream")

_u64, _i64, _i32, _int, _size, _ptr = (
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int,
    ctypes.c_size_t,
    ctypes.c_void_p,
)

# Argument types by name, as in include/xsched.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "HipQueueCreate": (_ptr, _ptr),
    "HwCommandCreateCallback": (_ptr, _ptr, _ptr),
    "HwCommandDestroy": (_u64,),
    "HwQueueDestroy": (_u64,),
    "HwQueueLaunch": (_u64, _u64),
    "HwQueueSynchronize": (_u64,),
    "XHintArrival": (_u64, _i64),
    "XHintBegin": (_u64, _ptr, _ptr),
    "XHintCap": (_int,),
    "XHintClass": (_u64, _int),
    "XHintDeadline": (_u64, _i64),
    "XHintEnd": (_u64, _u64),
    "XHintJob": (_u64,),
    "XHintKDeadline": (_size,),
    "XHintLaxity": (_u64, _i64, _i32, _i32),
    "XHintPreemptible": (_u64, _int),
    "XHintPriority": (_u64, _i32),
    "XHintSetScheduler": (_int, _int),
    "XHintSlo": (_u64, _i64),
    "XHintTimeslice": (_i64,),
    "XHintUtilization": (_u64, _i32),
    "XQueueCreate": (_ptr, _u64, _i64, _i64),
    "XQueueDestroy": (_u64,),
    "XQueueGet": (_ptr, _u64),
    "XQueueGetForStream": (_ptr, _ptr),
    "XQueueList": (_ptr, _ptr),
    "XQueueProfileHwCommandCount": (_u64, _ptr),
    "XQueueQuery": (_u64, _ptr),
    "XQueueResume": (_u64, _i64),
    "XQueueSetLaunchConfig": (_u64, _i64, _i64),
    "XQueueSetPreemptLevel": (_u64, _i64),
    "XQueueStats": (_u64, _ptr, _size),
    "XQueueSubmit": (_u64, _u64),
    "XQueueSuspend": (_u64, _i64),
    "XQueueWait": (_u64, _u64),
    "XQueueWaitAll": (_u64,),
}


class Library:
    """The functions of the preloaded library. Each returns the number of an XResult."""

    def __init__(self) -> None:
        self.waiting = ctypes.CDLL(None)
        keeping = ctypes.PyDLL(None)
        self._functions: dict[str, Callable[..., int]] = {}
        for name, types in FUNCTIONS.items():
            # By index, so that every call has an object of its own.
            function = (keeping if name in _SHORT else self.waiting)[name]
            if name not in _UNDECLARED:
                function.argtypes = types
            self._functions[name] = function
        self.begin = self._functions["XHintBegin"]
        self.end = self._functions["XHintEnd"]
        self.get_for_stream = self._functions["XQueueGetForStream"]

    def call(self, name: str, *arguments: Any) -> int:
        return self._functions[name](*arguments)

    def check(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises GivewayError unless it succeeds.
        """
        code = self._functions[name](*arguments)
        if code != 0:
            error = GivewayError(code)
            raise GivewayError(code, f"{name}: {error}")


# The library, once it is found and as long as it is not switched off; None otherwise.
active: Optional[Library] = None
# Grows with each fork: handles of the parent are not the child's.
generation = 0

_PACKAGES = ("giveway", "xsched", "xsched_hip")
_RUN = "Start the program with `xcli run -- python script.py` or `python -m giveway run script.py`"
# Why the library is not there, once that is known.
_missing: Optional[str] = None
_said: set[str] = set()
_lock = threading.Lock()


def find() -> Optional[Library]:
    """Returns the preloaded library; None without one, and then a warning says so once."""
    global active, _missing
    if active is not None:
        return active
    with _lock:
        if active is not None:
            # Another thread has found it meanwhile.
            return active
        if _missing is None:
            # Only what is in the program already: a library that is loaded late misses calls.
            program = ctypes.CDLL(None)
            if all(hasattr(program, name) for name in FUNCTIONS):
                active = Library()
                return active
            if hasattr(program, "XQueueCreate"):
                _missing = "the preloaded library is not giveway's, or is older than this package. Install them together"
            else:
                _missing = f"libshimhip.so is not preloaded. {_RUN}"
        missing = _missing
    say_once("inactive", f"giveway does nothing in this process: {missing}")
    return active


def accept(code: int) -> bool:
    """Returns true for success, and false if the library is switched off.

    Raises GivewayError for everything else.
    """
    global active, _missing
    if code == XResult.kXSchedSuccess:
        return True
    if code != XResult.kXSchedErrorNotSupported:
        raise GivewayError(code)
    with _lock:
        active, _missing = None, "XSCHED_DISABLE switches the library off"
    say_once("inactive", f"giveway does nothing in this process: {_missing}")
    return False


def say_once(key: str, text: str) -> None:
    """Warns once in this process and its forked children, at the caller's line outside of this package."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _PACKAGES:
        frame = frame.f_back
        level += 1
    warnings.warn(text, GivewayWarning, stacklevel=level)


def _after_fork() -> None:
    global generation, _lock
    generation += 1
    # Another thread may have held it.
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
