"""Scheduler: the hints and streams of its tasks. tests/plain has the rest."""

from __future__ import annotations

import sys
import threading
from typing import Any

import fakes
import hip
import pytest

import giveway


def test_task_runs_inside_its_hints_on_a_stream_of_its_own(memory: hip.Memory) -> None:
    def task(value: int) -> tuple[int, int]:
        stream = giveway.worker_stream()
        assert stream is not None
        memory.fill(value, stream)
        return stream, giveway.stream(stream).priority

    with giveway.Scheduler(workers=1) as scheduler:
        critical = scheduler.submit(task, 1, kind="latency_critical", slo_ms=60_000)
        stream, priority = critical.result(timeout=60)
        assert (stream != 0, priority) == (True, 10)
        # The future is done when the work on the stream is.
        assert memory.bytes() == bytes([1]) * memory.size
        assert scheduler.submit(task, 2).result(timeout=60) == (stream, 0)
        assert scheduler.submit(task, 3, priority=33).result(timeout=60) == (stream, 33)
        assert scheduler.get_metrics().classes["latency_critical"].slo_missed == 0
        assert giveway.stream(stream).priority == 0
    assert giveway.worker_stream() is None


def test_each_worker_has_its_stream() -> None:
    together = threading.Barrier(2, timeout=60)

    def task() -> Any:
        together.wait()
        return giveway.worker_stream()

    with giveway.Scheduler(workers=2, reserved=0) as scheduler:
        streams = {future.result(timeout=60) for future in [scheduler.submit(task) for _ in range(2)]}
    assert len(streams) == 2


def test_device_that_is_not_there_fails_the_task() -> None:
    with giveway.Scheduler(gpu_id=99, workers=1) as scheduler:
        failed = scheduler.submit(lambda: None)
        assert isinstance(failed.exception(timeout=60), giveway.GivewayError)
        assert scheduler.get_metrics().classes["best_effort"].failed == 1


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_framework_gives_the_stream(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fakes.torch() if framework == "torch" else fakes.cupy()

    def task() -> tuple[bool, int]:
        # The worker's stream is the current one, so that a part without a stream is about it.
        same = module.current.handle == giveway.worker_stream()
        return same, giveway.stream().priority

    with giveway.Scheduler(workers=1) as scheduler:
        # The stream of HIP that comes first is replaced when the framework is imported.
        first = scheduler.submit(giveway.worker_stream).result(timeout=60)
        assert first is not None
        monkeypatch.setitem(sys.modules, framework, module)
        assert scheduler.submit(task, priority=12).result(timeout=60) == (True, 12)
