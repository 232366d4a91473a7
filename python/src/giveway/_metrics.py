"""What a Scheduler has measured."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

# Percentiles are those of the latest tasks of a class.
_KEPT = 4096


@dataclass(frozen=True)
class Percentiles:
    """Times in milliseconds; 0 without any."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, times_ns: Iterable[int]) -> Percentiles:
        times = sorted(times_ns)
        if not times:
            return cls()

        def at(percent: int) -> float:
            # The smallest time that so many percent do not exceed.
            return times[math.ceil(len(times) * percent / 100) - 1] / 1e6

        return cls(len(times), sum(times) / len(times) / 1e6, at(50), at(90), at(99), times[-1] / 1e6)


@dataclass(frozen=True)
class ClassMetrics:
    """The tasks of a class. Latencies go from `submit` to the end of the task, with its work on the GPU."""

    submitted: int
    #: Waiting and running now.
    queued: int
    running: int
    #: Ended: with a result, with an exception, or cancelled before they began.
    completed: int
    failed: int
    cancelled: int
    #: Tasks with a target that took longer.
    slo_missed: int
    #: Of the latest 4096 tasks that ended with a result or an exception.
    queueing_ms: Percentiles
    latency_ms: Percentiles


@dataclass(frozen=True)
class SchedulerMetrics:
    workers: int
    queued: int
    running: int
    classes: dict[str, ClassMetrics]


@dataclass
class Counters:
    """The numbers of a class while they grow. The scheduler's lock guards them."""

    submitted: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    slo_missed: int = 0
    queueing: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT))
    latency: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def metrics(self) -> ClassMetrics:
        ended = self.completed + self.failed + self.cancelled
        return ClassMetrics(
            submitted=self.submitted,
            queued=self.submitted - ended - self.running,
            running=self.running,
            completed=self.completed,
            failed=self.failed,
            cancelled=self.cancelled,
            slo_missed=self.slo_missed,
            queueing_ms=Percentiles.of(self.queueing),
            latency_ms=Percentiles.of(self.latency),
        )
