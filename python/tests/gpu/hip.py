"""The few functions of HIP that the tests need, by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

NON_BLOCKING = 1
DEVICE_TO_HOST = 2


def _load() -> ctypes.CDLL:
    for name in ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("libamdhip64.so is not installed (make deps)")


_hip = _load()


def _check(name: str, *arguments: object) -> None:
    code = getattr(_hip, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name}: HIP reports error {code}")


class Stream:
    """A stream, as PyTorch's: with `cuda_stream`."""

    def __init__(self) -> None:
        place = ctypes.c_void_p()
        _check("hipStreamCreateWithFlags", ctypes.byref(place), ctypes.c_uint(NON_BLOCKING))
        self.cuda_stream = place.value or 0

    def synchronize(self) -> None:
        _check("hipStreamSynchronize", ctypes.c_void_p(self.cuda_stream))

    def destroy(self) -> None:
        _check("hipStreamDestroy", ctypes.c_void_p(self.cuda_stream))


class Memory:
    """Memory of the device."""

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self.place = ctypes.c_void_p()
        _check("hipMalloc", ctypes.byref(self.place), ctypes.c_size_t(size))

    def fill(self, value: int, stream: int) -> None:
        """Submits a fill, and waits for nothing."""
        _check("hipMemsetAsync", self.place, ctypes.c_int(value), ctypes.c_size_t(self.size), ctypes.c_void_p(stream))

    def bytes(self) -> bytes:
        content = ctypes.create_string_buffer(self.size)
        _check("hipMemcpy", content, self.place, ctypes.c_size_t(self.size), ctypes.c_int(DEVICE_TO_HOST))
        return content.raw


def synchronize() -> None:
    _check("hipDeviceSynchronize")


class Pinned:
    """Memory of the host that an asynchronous copy reaches."""

    def __init__(self, size: int) -> None:
        self.place = ctypes.c_void_p()
        _check("hipHostMalloc", ctypes.byref(self.place), ctypes.c_size_t(size), ctypes.c_uint(0))
        self.size = size

    def bytes(self) -> bytes:
        return ctypes.string_at(self.place.value or 0, self.size)


def copy_to_host(to: Pinned, source: Memory, stream: Stream) -> None:
    """Submits a copy, and waits for nothing."""
    size = ctypes.c_size_t(to.size)
    _check("hipMemcpyAsync", to.place, source.place, size, ctypes.c_int(DEVICE_TO_HOST), ctypes.c_void_p(stream.cuda_stream))


class Event:
    """An event. Whoever waits for it sleeps."""

    def __init__(self) -> None:
        self._place = ctypes.c_void_p()
        # hipEventBlockingSync, hipEventDisableTiming
        _check("hipEventCreateWithFlags", ctypes.byref(self._place), ctypes.c_uint(1 | 2))

    def record(self, stream: Stream) -> None:
        _check("hipEventRecord", self._place, ctypes.c_void_p(stream.cuda_stream))

    def wait(self) -> None:
        _check("hipEventSynchronize", self._place)


class Kernels:
    """The kernels of examples/kernels, from a code object."""

    def __init__(self, code_object: str) -> None:
        self._module = ctypes.c_void_p()
        _check("hipModuleLoad", ctypes.byref(self._module), code_object.encode())

    def launch(self, name: str, groups: int, threads: int, values: list[Any], stream: Stream) -> None:
        function = ctypes.c_void_p()
        _check("hipModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        shape = [ctypes.c_uint(number) for number in (groups, 1, 1, threads, 1, 1, 0)]
        _check("hipModuleLaunchKernel", function, *shape, ctypes.c_void_p(stream.cuda_stream), places, None)
