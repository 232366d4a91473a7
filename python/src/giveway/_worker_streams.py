"""The stream of a Scheduler's worker: of PyTorch or CuPy if one is imported and has a GPU, else one of HIP."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from contextlib import AbstractContextManager
from typing import Any, Callable, Optional

from . import _library
from ._types import GivewayError, XResult

_NON_BLOCKING = 1
_RUNTIMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")


class WorkerStream:
    """A stream of one worker. `inside` makes it the current stream of its framework."""

    def __init__(
        self,
        handle: int,
        owner: object,
        inside: Callable[[], AbstractContextManager[Any]],
        synchronize: Callable[[], object],
        close: Callable[[], object],
    ) -> None:
        self.handle = handle
        #: The module that made it; None for HIP.
        self.owner = owner
        self.inside = inside
        self.synchronize = synchronize
        self.close = close


def _nothing() -> None:
    pass


def renew(known: Optional[WorkerStream], gpu_id: int) -> Optional[WorkerStream]:
    """Returns the stream for the next task: the known one, unless a framework was imported meanwhile."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    # A module that is being imported has no attributes yet.
    make: Callable[[Any, int], Optional[WorkerStream]]
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available():
        owner, make = torch, _of_torch
    elif cupy is not None and hasattr(cupy, "cuda"):
        owner, make = cupy, _of_cupy
    else:
        owner, make = None, _of_hip
    if known is not None and known.owner is owner:
        return known
    if known is not None:
        known.close()
    return make(owner, gpu_id)


def _of_torch(torch: Any, gpu_id: int) -> WorkerStream:
    stream = torch.cuda.Stream(device=gpu_id)
    return WorkerStream(int(stream.cuda_stream), torch, lambda: torch.cuda.stream(stream), stream.synchronize, _nothing)


def _of_cupy(cupy: Any, gpu_id: int) -> WorkerStream:
    device = cupy.cuda.Device(gpu_id)
    with device:
        stream = cupy.cuda.Stream(non_blocking=True)

    @contextlib.contextmanager
    def inside() -> Any:
        with device, stream:
            yield

    return WorkerStream(int(stream.ptr), cupy, inside, stream.synchronize, _nothing)


def _runtime() -> Optional[ctypes.CDLL]:
    """Returns the HIP runtime: the one that is loaded, else that of XSCHED_HIP_LIB, else that of the system."""
    loaded = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[-1]
            if os.path.basename(path).startswith("libamdhip64.so"):
                loaded.add(path)
    named = os.environ.get("XSCHED_HIP_LIB")
    for name in [*sorted(loaded), *([named] if named else []), *_RUNTIMES]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _of_hip(_owner: object, gpu_id: int) -> Optional[WorkerStream]:
    """Returns None without the preloaded library, HIP, or a GPU."""
    hip = _runtime() if _library.find() is not None else None
    if hip is None:
        return None
    count = ctypes.c_int()
    if hip.hipGetDeviceCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    _check("hipSetDevice", hip.hipSetDevice(ctypes.c_int(gpu_id)))
    stream = ctypes.c_void_p()
    _check("hipStreamCreateWithFlags", hip.hipStreamCreateWithFlags(ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING)))
    return WorkerStream(
        stream.value or 0,
        None,
        contextlib.nullcontext,
        lambda: _check("hipStreamSynchronize", hip.hipStreamSynchronize(stream)),
        lambda: hip.hipStreamDestroy(stream),
    )


def _check(name: str, code: int) -> None:
    if code != 0:
        raise GivewayError(XResult.kXSchedErrorHardware, f"{name}: HIP reports error {code}")
