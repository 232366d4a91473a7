"""Hints of a Python program to giveway, which shares an AMD GPU between urgent and batch work.

The program runs under `xcli run` (or `python -m giveway run`), which preloads the library. Without it this package warns
once and does nothing.

    import giveway

    with giveway.priority(10):
        model(batch)
"""

from ._policy import policy
from ._queues import ProcessStats, Queue, QueueStats, hint_arrival, queues, stats, stream, thread_defaults
from ._scope import Scope, best_effort, latency_critical, priority, undisturbed
from ._streams import StreamLike
from ._types import (
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PRIORITY_NO_EXECUTE,
    GivewayError,
    GivewayWarning,
    ServerError,
    XQueueClass,
    XResult,
)
from ._version import __version__
from .scheduler import ClassMetrics, Percentiles, Scheduler, SchedulerMetrics, worker_stream

__all__ = [
    "PRIORITY_DEFAULT",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "PRIORITY_NO_EXECUTE",
    "ClassMetrics",
    "GivewayError",
    "GivewayWarning",
    "Percentiles",
    "ProcessStats",
    "Queue",
    "QueueStats",
    "Scheduler",
    "SchedulerMetrics",
    "Scope",
    "ServerError",
    "StreamLike",
    "XQueueClass",
    "XResult",
    "__version__",
    "active",
    "best_effort",
    "hint_arrival",
    "latency_critical",
    "policy",
    "priority",
    "queues",
    "stats",
    "stream",
    "thread_defaults",
    "undisturbed",
    "worker_stream",
]


def active() -> bool:
    """Returns whether the library is preloaded and on. Without it, the first call warns."""
    from . import _library

    return _library.find() is not None
