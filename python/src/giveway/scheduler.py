"""A scheduler for the tasks of one process: latency-critical tasks before best effort, each with its hints on a stream."""

from __future__ import annotations

import atexit
import heapq
import os
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any, Callable, Optional, TypeVar, Union

from . import _checks, _config, _library
from ._config import BEST_EFFORT, LATENCY_CRITICAL, Configuration, TaskClass
from ._metrics import ClassMetrics, Counters, Percentiles, SchedulerMetrics
from ._scope import scope_of
from ._types import NO_DEADLINE, XQueueClass
from ._worker_streams import WorkerStream, renew

__all__ = ["ClassMetrics", "Percentiles", "Scheduler", "SchedulerMetrics", "worker_stream"]

T = TypeVar("T")

_this = threading.local()


def worker_stream() -> Optional[int]:
    """Returns the handle (hipStream_t) of the stream for the task that this thread runs.

    None outside of tasks, and if there is no GPU: then neither PyTorch nor CuPy has one, and the library is not preloaded.
    """
    return getattr(_this, "stream", None)


class _Task:
    __slots__ = ("arrived", "call", "counters", "future", "kind", "order", "priority", "slo_ns")

    def __init__(self, call: Callable[[], Any], kind: str, priority: int, slo_ns: Optional[int], counters: Counters) -> None:
        self.call = call
        self.kind = kind
        self.priority = priority
        self.slo_ns = slo_ns
        self.counters = counters
        self.future: Future[Any] = Future()
        self.arrived = time.monotonic_ns()
        # Latency-critical first, then by priority, then by the end of the target.
        due = self.arrived + slo_ns if slo_ns is not None else float("inf")
        self.order: tuple[Any, ...] = (kind != LATENCY_CRITICAL, -priority, due)


class Scheduler:
    """Worker threads that run tasks in the order of their urgency, each inside of its hints.

    config_file: TOML, or JSON if its name ends in .json; see docs/python.md. Without it there are two workers, one of which is
      reserved for latency-critical tasks.
    gpu_id: the device of the workers' streams, as HIP numbers it.
    workers, reserved: override the configuration.

    Leave it by `with`, or call `shutdown`. Raises OSError or ValueError if the configuration cannot be used.
    """

    def __init__(
        self,
        config_file: Union[str, os.PathLike[str], None] = None,
        gpu_id: int = 0,
        *,
        workers: Optional[int] = None,
        reserved: Optional[int] = None,
    ) -> None:
        configuration = _config.load(config_file)
        count, kept = configuration.workers, configuration.reserved
        if workers is not None or reserved is not None:
            count, kept = _config.workers(count if workers is None else workers, reserved)
        self._configuration = Configuration(count, kept, configuration.classes)
        self._gpu_id = _checks.whole("gpu_id", gpu_id, 0, 2**31 - 1)
        self._generation = _library.generation
        # Here, so that the warning without the library names the program's line.
        _library.find()
        self._changed = threading.Condition()
        self._tasks: list[tuple[tuple[Any, ...], int, _Task]] = []
        self._submitted = 0
        self._ended = False
        self._counters = {name: Counters() for name in configuration.classes}
        self._workers = [
            # A forgotten scheduler must not keep the program from ending; `_at_exit` waits for its tasks.
            threading.Thread(target=self._work, args=(index < kept,), name=f"giveway-{index}", daemon=True)
            for index in range(count)
        ]
        for worker in self._workers:
            worker.start()
        _schedulers.add(self)

    def submit(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        kind: str = BEST_EFFORT,
        priority: Optional[int] = None,
        slo_ms: Optional[float] = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Runs `function(*args, **kwargs)` on a worker. Returns its future.

        kind: "latency_critical", "best_effort", or a class of the configuration.
        priority, slo_ms: override those of the class.

        The future is done when the work that the function submitted to the worker's stream has completed. For a function that
        has one of these names as a parameter itself, use functools.partial.

        Raises RuntimeError after `shutdown`.
        """
        if not callable(function):
            raise TypeError(f"expected a function, not {type(function).__name__}")
        row = self._class(kind)
        number = row.priority if priority is None else _checks.priority(priority)
        target = row.slo_ms if slo_ms is None else slo_ms
        slo_ns = None if target is None else _checks.milliseconds("slo_ms", target) * 1000
        task = _Task(lambda: function(*args, **kwargs), row.kind, number, slo_ns, self._counters[row.name])
        self._check_process()
        with self._changed:
            if self._ended:
                raise RuntimeError("the scheduler was shut down; make a new one")
            task.counters.submitted += 1
            self._submitted += 1
            heapq.heappush(self._tasks, (task.order, self._submitted, task))
            # A reserved worker may be the one that is woken, and not take the task.
            self._changed.notify_all()
        return task.future

    def _class(self, kind: str) -> TaskClass:
        row = self._configuration.classes.get(kind) if isinstance(kind, str) else None
        if row is None:
            raise ValueError(f"kind is {kind!r}; expected one of {', '.join(self._configuration.classes)}")
        return row

    def _check_process(self) -> None:
        if self._generation != _library.generation:
            raise RuntimeError("this scheduler belongs to the parent of this process: make one in each process")

    def _take(self, reserved: bool) -> Optional[_Task]:
        """Waits for a task; None when there will be none."""
        with self._changed:
            while True:
                if self._tasks and not (reserved and self._tasks[0][2].kind != LATENCY_CRITICAL):
                    return heapq.heappop(self._tasks)[2]
                if self._ended:
                    return None
                self._changed.wait()

    def _work(self, reserved: bool) -> None:
        stream: Optional[WorkerStream] = None
        while True:
            task = self._take(reserved)
            if task is None:
                break
            stream = self._run(task, stream)
            # The task refers to its arguments, and may be the last to do so.
            del task
        if stream is not None:
            stream.close()

    def _run(self, task: _Task, stream: Optional[WorkerStream]) -> Optional[WorkerStream]:
        """Runs a task. Returns the worker's stream."""
        if not task.future.set_running_or_notify_cancel():
            with self._changed:
                task.counters.cancelled += 1
            return stream
        begun = time.monotonic_ns()
        with self._changed:
            task.counters.running += 1
        result: Any = None
        error: Optional[BaseException] = None
        try:
            stream = renew(stream, self._gpu_id)
            result = self._call(task, stream, begun)
        except BaseException as caught:
            error = caught
        self._note(task, begun, error is not None)
        if error is None:
            task.future.set_result(result)
        else:
            task.future.set_exception(error)
            # The traceback refers to this frame.
            error = None
        return stream

    def _call(self, task: _Task, stream: Optional[WorkerStream], begun: int) -> Any:
        if stream is None:
            return task.call()
        critical = task.kind == LATENCY_CRITICAL
        cls = XQueueClass.kQueueClassLatencyCritical if critical else XQueueClass.kQueueClassBestEffort
        deadline = NO_DEADLINE
        if task.slo_ns is not None:
            # The target counts from the submission, and the deadline from now on.
            deadline = max(1, (task.slo_ns - (begun - task.arrived)) // 1000)
        _this.stream = stream.handle
        try:
            with stream.inside(), scope_of(cls, task.priority, deadline, stream.handle):
                result = task.call()
                stream.synchronize()
                return result
        finally:
            _this.stream = None

    def _note(self, task: _Task, begun: int, failed: bool) -> None:
        now = time.monotonic_ns()
        counters = task.counters
        with self._changed:
            counters.running -= 1
            if failed:
                counters.failed += 1
            else:
                counters.completed += 1
            counters.queueing.append(begun - task.arrived)
            counters.latency.append(now - task.arrived)
            if task.slo_ns is not None and now - task.arrived > task.slo_ns:
                counters.slo_missed += 1

    def get_metrics(self) -> SchedulerMetrics:
        """Returns what has been measured so far."""
        self._check_process()
        with self._changed:
            classes = {name: counters.metrics() for name, counters in self._counters.items()}
        return SchedulerMetrics(
            workers=len(self._workers),
            queued=sum(row.queued for row in classes.values()),
            running=sum(row.running for row in classes.values()),
            classes=classes,
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks. Those that were submitted still run, unless they are cancelled.

        wait: return when all of them have ended.
        cancel_futures: cancel those that have not begun.
        """
        if self._generation != _library.generation:
            # The workers are the parent's.
            return
        with self._changed:
            self._ended = True
            if cancel_futures:
                for _, _, task in self._tasks:
                    task.future.cancel()
            self._changed.notify_all()
        if wait:
            for worker in self._workers:
                if worker is not threading.current_thread():
                    worker.join()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for scheduler in list(_schedulers):
        scheduler.shutdown()
