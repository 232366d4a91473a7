"""Hints for a part of a program: `with giveway.priority(10):`, and the decorators.

The library keeps the parts: overlapping parts of threads count together, and the hints of a part count until the work
that was submitted in it has completed. Python only remembers which parts it has begun.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar
from threading import get_ident
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar, Union, cast, overload

from . import _checks, _library
from ._queues import Queue
from ._streams import StreamLike, current_handle, handle_of, queue_of
from ._types import HINT_KEEP, NO_DEADLINE, PRIORITY_MAX, GivewayError, HintSet, XQueueClass, XResult

F = TypeVar("F", bound=Callable[..., Any])

_NULL_STREAM = ctypes.c_void_p(0)
_NONE = int(XQueueClass.kQueueClassNone)


class _Part:
    """Places for the numbers of one part. They are used again, because making objects of ctypes is slow."""

    __slots__ = ("generation", "mark", "number", "number_reference", "queue", "queue_reference", "thread")

    def __init__(self) -> None:
        self.queue = ctypes.c_uint64()
        self.number = ctypes.c_uint64()
        self.queue_reference = ctypes.byref(self.queue)
        self.number_reference = ctypes.byref(self.number)
        self.generation = _library.generation
        # Who has begun it: the thread, or the mark in the context if the scope was entered already.
        self.thread = 0
        self.mark: Optional[_Mark] = None


# Parts that are not in use. Those that are open during a fork stay the parent's: their generation tells them apart.
_free: list[_Part] = []
os.register_at_fork(after_in_child=_free.clear)

# Marks of the scopes that this thread or task has entered while they were entered already, innermost first: (mark, the outer
# ones). Two tasks of one thread can be inside of one scope and leave it in any order. A single user needs no mark, which is
# faster.
_Mark = tuple["Scope", _Part]
_marks: ContextVar[Any] = ContextVar("giveway", default=None)
_modules = sys.modules


@functools.lru_cache(maxsize=1024)
def _hints(priority: int, cls: int, deadline: int) -> Any:
    # The reference keeps the structure. Only the library reads it, so threads can share it.
    return ctypes.byref(HintSet(priority, cls, deadline))


class Scope:
    """Hints for the XQueue of a stream while this is entered, by `with`, `async with` or as a decorator of functions.

    One object can be entered again inside of itself, by several threads, and by several tasks.
    """

    __slots__ = ("_hints", "_open", "_stream")

    def __init__(self, hints: Any, stream: Optional[StreamLike]) -> None:
        self._hints = hints
        # None for the current stream, a Queue, or the handle of a stream.
        self._stream: Union[Queue, int, None]
        if stream is None or isinstance(stream, Queue):
            self._stream = stream
        else:
            self._stream = handle_of(stream)
        # Parts that have begun and not ended. Removing one from a list decides who ends it.
        self._open: list[_Part] = []

    def __enter__(self) -> Scope:
        library = _library.active or _library.find()
        if library is None:
            return self
        try:
            part = _free.pop()
        except IndexError:
            part = _Part()
        try:
            stream = self._stream
            if stream is None:
                if "torch" in _modules or "cupy" in _modules:
                    handle = current_handle()
                    place = ctypes.c_void_p(handle)
                else:
                    handle, place = 0, _NULL_STREAM
                found = library.get_for_stream(part.queue_reference, place) == 0
                if not (found or queue_of(library, handle, part.queue, chosen=False)):
                    return self
            elif isinstance(stream, int):
                found = library.get_for_stream(part.queue_reference, ctypes.c_void_p(stream)) == 0
                if not (found or queue_of(library, stream, part.queue, chosen=True)):
                    return self
            else:
                part.queue.value = stream.live_handle()
            code = library.begin(part.queue, self._hints, part.number_reference)
            if code and not _library.accept(code):
                return self
            opened = self._open
            if opened:
                part.mark = (self, part)
                _marks.set((part.mark, _marks.get()))
            part.thread = get_ident()
            opened.append(part)
            return self
        except BaseException:
            self._undo(library, part)
            raise

    def _undo(self, library: _library.Library, part: _Part) -> None:
        """After a failed or interrupted __enter__: nothing must stay begun."""
        if part in self._open:
            self._open.remove(part)
        # If no part had begun, the number is 0 or that of an earlier part, and this changes nothing.
        library.end(part.queue, part.number)
        part.mark = None
        _free.append(part)

    def __exit__(self, kind: Optional[type[BaseException]] = None, *_: object) -> None:
        opened = self._open
        if not opened:
            return
        part = opened[-1]
        # A thread has one part without a mark at most, and enters with marks while it has that.
        if part.mark is not None or part.thread != get_ident():
            part = self._own()
        # Removing it decides who ends it, if a generator that entered here is left elsewhere.
        try:
            opened.remove(part)
        except ValueError:
            return
        library = _library.active
        if library is None or part.generation != _library.generation:
            # The library was switched off, or the child of a fork left a part of its parent.
            return
        code = library.end(part.queue, part.number)
        _free.append(part)
        # The queue may have ended before, and its hints with it.
        if code and code != XResult.kXSchedErrorNotFound and kind is None:
            raise GivewayError(code)

    def _own(self) -> _Part:
        """Finds the part that this thread or task has begun, and takes its mark away."""
        marks = _marks.get()
        inner: list[_Mark] = []
        while marks is not None:
            mark, outer = marks
            if mark[0] is self and mark[1].mark is mark:
                for other in reversed(inner):
                    outer = (other, outer)
                _marks.set(outer)
                mark[1].mark = None
                return cast(_Part, mark[1])
            # One that was left elsewhere is dropped at the next opportunity.
            if mark[1].mark is mark:
                inner.append(mark)
            marks = outer
        here = get_ident()
        for part in reversed(self._open):
            if part.mark is None and part.thread == here:
                return part
        # Entered in another context: by a generator, or by a fixture of a test.
        part = self._open[-1]
        part.mark = None
        return part

    async def __aenter__(self) -> Scope:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]] = None,
        error: Optional[BaseException] = None,
        trace: Optional[TracebackType] = None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Decorates a function: every call of it is inside of the scope, until it returns or its coroutine or generator ends."""
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"a function can be decorated, not {function!r}")
        return cast(F, _decorate(self, function))


def _decorate(scope: Scope, function: Any) -> Any:
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with scope:
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with scope:
                inner = function(*args, **kwargs)
                try:
                    value = await inner.__anext__()
                    while True:
                        try:
                            sent = yield value
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            value = await inner.athrow(error)
                        else:
                            value = await inner.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await inner.aclose()

    elif inspect.isgeneratorfunction(function):

        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with scope:
                return (yield from function(*args, **kwargs))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with scope:
                return function(*args, **kwargs)

    return functools.wraps(function)(wrapper)


# Scopes of the current stream, which are the same object each time: making one takes a third as long as entering it.
_scopes_of_priority: dict[int, Scope] = {}


def priority(priority: int, *, stream: Optional[StreamLike] = None) -> Scope:
    """Gives the XQueue of a stream this priority, -255 to 255, in a part of the program. A bigger number is more urgent.

    stream: a stream or a Queue; without it the current stream of PyTorch or CuPy when the part begins, else the null
      stream.
    """
    if stream is None and type(priority) is int:
        scope = _scopes_of_priority.get(priority)
        # One that is open works as well, but entering it again is slower.
        if scope is not None and not scope._open:
            return scope
    number = _checks.priority(priority)
    scope = Scope(_hints(number, _NONE, NO_DEADLINE), stream)
    if stream is None:
        _scopes_of_priority[number] = scope
    return scope


def scope_of(cls: XQueueClass, priority: Optional[int], deadline_us: int, stream: Optional[StreamLike]) -> Scope:
    number = HINT_KEEP if priority is None else _checks.priority(priority)
    return Scope(_hints(number, int(cls), deadline_us), stream)


@overload
def latency_critical(function: F, /) -> F: ...
@overload
def latency_critical(
    *, slo_ms: Optional[float] = None, priority: Optional[int] = None, stream: Optional[StreamLike] = None
) -> Scope: ...
def latency_critical(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    slo_ms: Optional[float] = None,
    priority: Optional[int] = None,
    stream: Optional[StreamLike] = None,
) -> Any:
    """A part whose work must start at once: `@latency_critical`, `@latency_critical(slo_ms=10)`, `with latency_critical():`.

    slo_ms: the work is to be done so many milliseconds after it arrives.
    priority, stream: as for `priority`. Without a priority the queue keeps its own.
    """
    deadline = NO_DEADLINE if slo_ms is None else _checks.milliseconds("slo_ms", slo_ms)
    scope = scope_of(XQueueClass.kQueueClassLatencyCritical, priority, deadline, stream)
    return scope if function is None else scope(function)


@overload
def best_effort(function: F, /) -> F: ...
@overload
def best_effort(*, priority: Optional[int] = None, stream: Optional[StreamLike] = None) -> Scope: ...
def best_effort(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    priority: Optional[int] = None,
    stream: Optional[StreamLike] = None,
) -> Any:
    """A part whose work may wait: `@best_effort`, `@best_effort(priority=-10)`, `with best_effort():`.

    priority, stream: as for `priority`. Without a priority the queue keeps its own.
    """
    scope = scope_of(XQueueClass.kQueueClassBestEffort, priority, NO_DEADLINE, stream)
    return scope if function is None else scope(function)


@overload
def undisturbed(function: F, /) -> F: ...
@overload
def undisturbed(*, stream: Optional[StreamLike] = None) -> Scope: ...
def undisturbed(function: Optional[Callable[..., Any]] = None, /, *, stream: Optional[StreamLike] = None) -> Any:
    """A part that measures: its work has the highest priority and is latency-critical.

    For autotuners and benchmarks, which choose by the times of kernels. Others wait meanwhile, so keep it short. HPF, HHPF
    and LCBE do not suspend such work for others. EDF and SLO do so for work whose deadline is near, and other policies for
    their own reasons. A rule of the server can limit the priority.

    stream: as for `priority`.
    """
    scope = scope_of(XQueueClass.kQueueClassLatencyCritical, PRIORITY_MAX, NO_DEADLINE, stream)
    return scope if function is None else scope(function)
