"""XQueues of this process: `stream`, `queues`, `stats`, and hints that stay."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from . import _checks, _library
from ._library import Library
from ._streams import StreamLike, current_handle, handle_of, queue_of
from ._types import (
    NO_ARRIVAL,
    NO_DEADLINE,
    PRIORITY_DEFAULT,
    QUEUE_OF_NEW_STREAMS,
    UTILIZATION_MAX,
    UTILIZATION_MIN,
    GivewayError,
    QueueStatistics,
    XPreemptLevel,
    XQueueClass,
    XQueueResumeFlag,
    XQueueState,
    XQueueSuspendFlag,
    XResult,
)


@dataclass(frozen=True)
class Counts:
    """What one XQueue or several have done."""

    #: Commands launched by the submitting thread, and kept for later.
    direct: int = 0
    deferred: int = 0
    #: Commands that are not launched yet.
    pending: int = 0
    #: Commands that were launched, and of these those that are not known to have completed.
    launched: int = 0
    in_flight: int = 0
    #: How often the queue was suspended, and for how many nanoseconds in all.
    suspensions: int = 0
    suspended_ns: int = 0
    #: Device time of completed commands in nanoseconds, as far as it is known: an upper bound.
    device_ns: int = 0


@dataclass(frozen=True)
class QueueStats(Counts):
    """What an XQueue has done, and how it is configured."""

    handle: int = 0
    #: The largest number of commands in flight, and the batch size; 0 while the queue adapts.
    threshold: int = 0
    batch_size: int = 0
    #: The priority in force, and the requested preemption level.
    priority: int = PRIORITY_DEFAULT
    level: int = int(XPreemptLevel.kPreemptLevelUnknown)
    #: Whether everything submitted is known to have completed.
    idle: bool = True
    #: Whether commands may be launched now.
    running: bool = True


@dataclass(frozen=True)
class ProcessStats(Counts):
    """What the XQueues of this process have done: sums, and each of them."""

    #: Whether the library is preloaded and on.
    active: bool = False
    queues: tuple[QueueStats, ...] = ()


_SUMS = [field.name for field in fields(Counts)]

_FLAGS = {
    None: XQueueSuspendFlag.kQueueSuspendFlagNone,
    "launched": XQueueSuspendFlag.kQueueSuspendFlagSyncHwQueue,
    "all": XQueueSuspendFlag.kQueueSuspendFlagWaitAll,
    "idle": XQueueSuspendFlag.kQueueSuspendFlagWaitIdle,
}


class Queue:
    """An XQueue of this process. One with the handle 0 does nothing: the library is not preloaded."""

    __slots__ = ("_generation", "_handle")

    def __init__(self, handle: int) -> None:
        self._handle = _checks.whole("handle", handle, 0, 2**64 - 2)
        self._generation = _library.generation

    @property
    def handle(self) -> int:
        """The XQueueHandle."""
        return self._handle

    def live_handle(self) -> int:
        """Returns the handle. Raises GivewayError in the child of the process that had the queue."""
        if self._generation != _library.generation:
            code = XResult.kXSchedErrorNotFound
            raise GivewayError(code, f"queue {self._handle} belongs to the parent of this process ({code.name})")
        return self._handle

    def __repr__(self) -> str:
        return f"giveway.Queue({self._handle})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Queue):
            return NotImplemented
        return (self._handle, self._generation) == (other._handle, other._generation)

    def __hash__(self) -> int:
        return hash((self._handle, self._generation))

    def _find(self) -> Optional[Library]:
        library = _library.find()
        return library if library is not None and self.live_handle() != 0 else None

    def stats(self) -> QueueStats:
        """Returns what the queue has done."""
        library = self._find()
        if library is None:
            return QueueStats(handle=self._handle)
        raw = QueueStatistics()
        library.check("XQueueStats", self._handle, ctypes.byref(raw), ctypes.sizeof(raw))
        names = [field[0] for field in QueueStatistics._fields_ if field[0] not in ("state", "running")]
        return QueueStats(
            handle=self._handle,
            idle=raw.state == XQueueState.kQueueStateIdle,
            running=raw.running != 0,
            **{name: getattr(raw, name) for name in names},
        )

    @property
    def priority(self) -> int:
        """The priority in force. Setting it changes the one that the queue has outside of `with giveway.priority(...)`."""
        return self.stats().priority

    @priority.setter
    def priority(self, value: int) -> None:
        self.hint(priority=value)

    def hint(
        self,
        *,
        priority: Optional[int] = None,
        cls: Union[str, XQueueClass, None] = None,
        deadline_us: Optional[int] = None,
        utilization: Optional[int] = None,
        preemptible: Optional[bool] = None,
    ) -> None:
        """Sets hints that stay. Those that are not given stay as they are.

        priority: -255 to 255; -256 for a queue that never runs.
        cls: "latency-critical", "best-effort", or "none", which takes it back.
        deadline_us: microseconds after the queue becomes ready; -1 takes it back.
        utilization: 0 to 100 percent.
        preemptible: False if the queue must not be suspended while it has work.
        """
        _hint(self, priority, cls, deadline_us, utilization, preemptible)

    def hint_arrival(self, us: Optional[int] = 0) -> None:
        """Announces work in so many microseconds; None takes the announcement back."""
        number = NO_ARRIVAL if us is None else _checks.microseconds("us", us)
        library = self._find()
        if library is not None:
            library.check("XHintArrival", self._handle, number)

    def suspend(self, *, wait: Optional[str] = None) -> None:
        """Suspends the queue until `resume`.

        wait: "launched" also waits until everything launched has completed; "all" and "idle" wait before that until
          everything submitted has completed, or until the queue is idle.
        """
        if wait not in _FLAGS:
            raise ValueError(f"wait is {wait!r}; expected None, 'launched', 'all' or 'idle'")
        library = self._find()
        if library is not None:
            library.check("XQueueSuspend", self._handle, int(_FLAGS[wait]))

    def resume(self, *, drop: bool = False) -> None:
        """Ends the suspension by `suspend`.

        drop: discards what is submitted and not launched.
        """
        flag = XQueueResumeFlag.kQueueResumeFlagDropCommands if drop else XQueueResumeFlag.kQueueResumeFlagNone
        library = self._find()
        if library is not None:
            library.check("XQueueResume", self._handle, int(flag))

    def wait(self) -> None:
        """Waits until everything submitted before the call has completed."""
        library = self._find()
        if library is not None:
            library.check("XQueueWaitAll", self._handle)

    def configure(
        self, *, level: Optional[int] = None, threshold: Optional[int] = None, batch_size: Optional[int] = None
    ) -> None:
        """Sets the preemption level (1 to 3), or how many commands may be in flight and between two markers."""
        most = 2**31 - 1
        level = None if level is None else _checks.whole("level", level, 1, 3)
        threshold = 0 if threshold is None else _checks.whole("threshold", threshold, 1, most)
        batch_size = 0 if batch_size is None else _checks.whole("batch_size", batch_size, 1, most)
        library = self._find()
        if library is None:
            return
        if level is not None:
            library.check("XQueueSetPreemptLevel", self._handle, level)
        if threshold or batch_size:
            library.check("XQueueSetLaunchConfig", self._handle, threshold, batch_size)


def _hint(
    queue: Optional[Queue],
    priority: Optional[int],
    cls: Union[str, XQueueClass, None],
    deadline_us: Optional[int],
    utilization: Optional[int],
    preemptible: Optional[bool],
) -> None:
    """Sets hints for a queue, or for the streams that this thread creates from now on."""
    calls: list[tuple[str, int]] = []
    if priority is not None:
        calls.append(("XHintPriority", _checks.priority(priority, may_stop=True)))
    if cls is not None:
        calls.append(("XHintClass", int(_checks.queue_class(cls))))
    if deadline_us is not None:
        back = type(deadline_us) is int and deadline_us == NO_DEADLINE
        calls.append(("XHintDeadline", NO_DEADLINE if back else _checks.microseconds("deadline_us", deadline_us)))
    if utilization is not None:
        calls.append(("XHintUtilization", _checks.whole("utilization", utilization, UTILIZATION_MIN, UTILIZATION_MAX)))
    if preemptible is not None:
        if not isinstance(preemptible, bool):
            raise TypeError(f"preemptible is True or False, not {type(preemptible).__name__}")
        calls.append(("XHintPreemptible", int(preemptible)))
    library = _library.find()
    if library is None:
        return
    handle = QUEUE_OF_NEW_STREAMS if queue is None else queue.live_handle()
    if handle == 0:
        return
    for name, number in calls:
        library.check(name, handle, number)


def thread_defaults(
    *,
    priority: Optional[int] = None,
    cls: Union[str, XQueueClass, None] = None,
    deadline_us: Optional[int] = None,
    utilization: Optional[int] = None,
    preemptible: Optional[bool] = None,
) -> None:
    """Sets hints for the XQueues of the streams that the calling thread creates from now on. As in `Queue.hint`."""
    _hint(None, priority, cls, deadline_us, utilization, preemptible)


def stream(stream: Optional[StreamLike] = None) -> Queue:
    """Returns the XQueue of a stream, which exists from now on.

    stream: a stream or a Queue; without it the current stream of PyTorch or CuPy, else the null stream.
    """
    if isinstance(stream, Queue):
        return stream
    handle = None if stream is None else handle_of(stream)
    library = _library.find()
    if library is None:
        return Queue(0)
    place = ctypes.c_uint64()
    chosen = handle is not None
    found = queue_of(library, current_handle() if handle is None else handle, place, chosen=chosen)
    return Queue(place.value if found else 0)


def hint_arrival(us: Optional[int] = 0, *, stream: Optional[StreamLike] = None) -> None:
    """Announces work on a stream in `us` microseconds, for the policies that clear the device ahead of time (LCBE).

    us: 0 or more; None takes the announcement back.
    stream: as in `priority`.
    """
    number = None if us is None else _checks.microseconds("us", us)
    _stream(stream).hint_arrival(number)


# The parameters above are named `stream` as well.
_stream = stream


def queues() -> list[Queue]:
    """Returns the XQueues of this process."""
    library = _library.find()
    if library is None:
        return []
    room = 64
    while True:
        handles = (ctypes.c_uint64 * room)()
        count = ctypes.c_size_t(room)
        code = library.call("XQueueList", handles, ctypes.byref(count))
        if not _library.accept(code):
            return []
        if count.value <= room:
            return [Queue(handle) for handle in handles[: count.value]]
        # There are more by now, and another thread may be making some.
        room = count.value + 16


def stats() -> ProcessStats:
    """Returns what this process has done."""
    every: list[QueueStats] = []
    for queue in queues():
        try:
            every.append(queue.stats())
        except GivewayError as error:
            # The queue ended meanwhile.
            if error.code != XResult.kXSchedErrorNotFound:
                raise
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in every) for name in _SUMS}
    return ProcessStats(active=_library.active is not None, queues=tuple(every), **sums)
