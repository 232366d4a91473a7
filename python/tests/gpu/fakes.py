"""Stand-ins for PyTorch and CuPy: what giveway uses of their modules, with streams of HIP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import hip


class Current(threading.local):
    """The current stream of a thread, by its handle."""

    handle = 0


def torch(*, initialized: bool = True, private: bool = False) -> Any:
    """A module `torch`. `private`: with the fast functions of torch._C."""
    module: Any = ModuleType("torch")
    current = Current()
    asked: list[str] = []

    def current_stream() -> Any:
        asked.append("public")
        return SimpleNamespace(cuda_stream=current.handle)

    def raw(device: int) -> int:
        asked.append(f"private, device {device}")
        return current.handle

    @contextlib.contextmanager
    def inside(stream: Any) -> Iterator[None]:
        before, current.handle = current.handle, stream.cuda_stream
        try:
            yield
        finally:
            current.handle = before

    module.cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        is_available=lambda: True,
        current_stream=current_stream,
        Stream=lambda device: hip.Stream(),
        stream=inside,
    )
    module._C = SimpleNamespace(_cuda_getDevice=lambda: 0, _cuda_getCurrentRawStream=raw) if private else SimpleNamespace()
    module.asked = asked
    module.current = current
    return module


class CupyStream:
    """A stream of CuPy: with `ptr`, and current inside of `with`."""

    def __init__(self, current: Current) -> None:
        self._stream = hip.Stream()
        self._current = current
        self._before: list[int] = []
        self.ptr = self._stream.cuda_stream
        self.synchronize = self._stream.synchronize

    def __enter__(self) -> CupyStream:
        self._before.append(self._current.handle)
        self._current.handle = self.ptr
        return self

    def __exit__(self, *_: object) -> None:
        self._current.handle = self._before.pop()


def cupy() -> Any:
    module: Any = ModuleType("cupy")
    current = Current()
    module.cuda = SimpleNamespace(
        get_current_stream=lambda: SimpleNamespace(ptr=current.handle),
        Device=lambda _: contextlib.nullcontext(),
        Stream=lambda non_blocking: CupyStream(current),
    )
    module.current = current
    return module
