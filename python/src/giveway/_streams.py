"""Which stream is meant, and the XQueue in front of it."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _library
from ._library import Library
from ._types import GivewayError, XPreemptLevel, XQueueCreateFlag, XResult

if TYPE_CHECKING:
    from ._queues import Queue

# A hipStream_t as a number, an object with `cuda_stream` (PyTorch), `ptr` (CuPy) or `handle`, or a Queue.
StreamLike = Union[int, "Queue", Any]

_ATTRIBUTES = ("cuda_stream", "ptr", "handle")


def handle_of(stream: Any) -> int:
    """Returns the hipStream_t of a stream as a number. Raises TypeError if it is no stream."""
    value = stream
    if not isinstance(stream, int):
        for attribute in _ATTRIBUTES:
            if hasattr(stream, attribute):
                value = getattr(stream, attribute)
                break
        else:
            raise TypeError(
                f"stream is a number, a giveway.Queue, or an object with one of {', '.join(_ATTRIBUTES)}, "
                f"not {type(stream).__name__}"
            )
        # ctypes.c_void_p and alike: None is the null stream.
        value = getattr(value, "value", value)
        value = 0 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"the handle of a stream is a number, not {type(value).__name__}")
    if not 0 <= value < 2**64:
        raise ValueError(f"stream is {value}, which is no address")
    return int(value)


class _TorchStream:
    """The current stream of PyTorch, by its fast functions where it has them. They are private, so they may be missing."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        inner = getattr(torch, "_C", None)
        self.raw: Optional[Callable[[int], int]] = getattr(inner, "_cuda_getCurrentRawStream", None)
        self.device: Optional[Callable[[], int]] = getattr(inner, "_cuda_getDevice", None)

    def handle(self) -> Optional[int]:
        """Returns None while PyTorch has not used the GPU: asking would initialize it, which spoils a later fork."""
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return None
        if self.raw is not None and self.device is not None:
            return self.raw(self.device())
        return int(cuda.current_stream().cuda_stream)


_torch: Optional[_TorchStream] = None


def current_handle() -> int:
    """Returns the current stream of PyTorch if it is imported and in use, else that of CuPy, else the null stream."""
    global _torch
    torch = sys.modules.get("torch")
    # A module that is being imported has no attributes yet.
    if torch is not None and hasattr(torch, "cuda"):
        known = _torch
        if known is None or known.torch is not torch:
            _torch = known = _TorchStream(torch)
        handle = known.handle()
        if handle is not None:
            return handle
    cupy = sys.modules.get("cupy")
    if cupy is not None and hasattr(cupy, "cuda"):
        return int(cupy.cuda.get_current_stream().ptr)
    return 0


def queue_of(library: Library, stream: int, place: ctypes.c_uint64, *, chosen: bool) -> bool:
    """Writes the XQueue of a stream to `place`; makes it if there is none.

    Returns false if the library is switched off, or if no stream was chosen and there is no GPU, which is said once.
    Raises GivewayError for any other failure.
    """
    address = ctypes.c_void_p(stream)
    code = library.get_for_stream(ctypes.byref(place), address)
    if code == XResult.kXSchedErrorNotFound:
        hardware_queue = ctypes.c_uint64()
        code = library.call("HipQueueCreate", ctypes.byref(hardware_queue), stream)
        if code == 0:
            level, flags = XPreemptLevel.kPreemptLevelBlock, XQueueCreateFlag.kQueueCreateFlagNone
            code = library.call("XQueueCreate", ctypes.byref(place), hardware_queue, level, flags)
    if code == XResult.kXSchedErrorHardware and not chosen:
        # A program that goes on without a GPU goes on with its hints as well.
        _library.say_once("hardware", "giveway finds no GPU: HIP is missing or reports an error. Hints have no effect")
        return False
    if code == XResult.kXSchedErrorInvalidValue:
        raise GivewayError(code, f"{stream:#x} is not a stream ({XResult.kXSchedErrorInvalidValue.name})")
    return _library.accept(code)
