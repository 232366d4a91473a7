"""Scheduler without a GPU: order, futures, metrics, configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from giveway import Scheduler, worker_stream


class Gate:
    """Keeps a worker busy until it is opened."""

    def __init__(self, scheduler: Scheduler, **options: Any) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.future = scheduler.submit(self._wait, **options)
        assert self.entered.wait(60)

    def _wait(self) -> None:
        self.entered.set()
        assert self.opened.wait(60)


def test_results_and_exceptions_come_with_the_future() -> None:
    def fail() -> None:
        raise KeyError("x")

    with Scheduler() as scheduler:
        assert scheduler.submit(divmod, 7, 2).result(timeout=60) == (3, 1)
        assert scheduler.submit(dict, a=1).result(timeout=60) == {"a": 1}
        with pytest.raises(KeyError, match="x"):
            scheduler.submit(fail).result(timeout=60)
        assert scheduler.submit(worker_stream).result(timeout=60) is None


def test_urgent_tasks_run_first() -> None:
    order: list[str] = []
    with Scheduler(workers=1) as scheduler:
        gate = Gate(scheduler)
        scheduler.submit(order.append, "batch, first")
        scheduler.submit(order.append, "batch, second")
        scheduler.submit(order.append, "batch, 9", priority=9)
        scheduler.submit(order.append, "critical, no target", kind="latency_critical")
        scheduler.submit(order.append, "critical, late", kind="latency_critical", slo_ms=50_000)
        scheduler.submit(order.append, "critical, soon", kind="latency_critical", slo_ms=40_000)
        scheduler.submit(order.append, "critical, 99", kind="latency_critical", priority=99)
        gate.opened.set()
    assert order == [
        "critical, 99",
        "critical, soon",
        "critical, late",
        "critical, no target",
        "batch, 9",
        "batch, first",
        "batch, second",
    ]


def test_reserved_worker_leaves_batch_to_the_others() -> None:
    with Scheduler(workers=2, reserved=1) as scheduler:
        gate = Gate(scheduler)
        waiting = scheduler.submit(lambda: "batch")
        # The reserved worker runs both, and passes the batch task, which came before.
        for _ in range(2):
            assert scheduler.submit(lambda: "critical", kind="latency_critical").result(timeout=60) == "critical"
        assert not waiting.done()
        gate.opened.set()
        assert waiting.result(timeout=60) == "batch"


def test_cancelled_tasks_do_not_run() -> None:
    ran: list[int] = []
    scheduler = Scheduler(workers=1)
    gate = Gate(scheduler)
    by_hand, by_shutdown = scheduler.submit(ran.append, 1), scheduler.submit(ran.append, 2)
    assert by_hand.cancel()
    scheduler.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="shut down"):
        scheduler.submit(ran.append, 3)
    gate.opened.set()
    scheduler.shutdown()
    with pytest.raises(CancelledError):
        by_shutdown.result(timeout=60)
    assert ran == []
    metrics = scheduler.get_metrics().classes["best_effort"]
    assert (metrics.submitted, metrics.cancelled, metrics.completed, metrics.queued) == (3, 2, 1, 0)


def test_shutdown_runs_what_was_submitted() -> None:
    ran: list[int] = []
    with Scheduler(workers=3, reserved=0) as scheduler:
        for number in range(100):
            scheduler.submit(ran.append, number)
    assert sorted(ran) == list(range(100))


def test_metrics_count_by_class() -> None:
    with Scheduler(workers=1) as scheduler:
        gate = Gate(scheduler, kind="latency_critical", slo_ms=0.001)
        scheduler.submit(int)
        metrics = scheduler.get_metrics()
        assert (metrics.workers, metrics.queued, metrics.running) == (1, 1, 1)
        gate.opened.set()
        gate.future.result(timeout=60)
        scheduler.submit(int, "no number").exception(timeout=60)
        scheduler.submit(int, kind="latency_critical", slo_ms=3_600_000).result(timeout=60)
    critical, batch = (scheduler.get_metrics().classes[name] for name in ("latency_critical", "best_effort"))
    assert (critical.submitted, critical.completed, critical.failed, critical.slo_missed) == (2, 2, 0, 1)
    assert (batch.submitted, batch.completed, batch.failed, batch.slo_missed) == (2, 1, 1, 0)
    for one in (critical, batch):
        assert one.latency_ms.count == one.queueing_ms.count == 2
        assert 0 < one.latency_ms.p50 <= one.latency_ms.p90 <= one.latency_ms.p99 <= one.latency_ms.max
        assert one.queueing_ms.mean <= one.latency_ms.mean


def test_wrong_tasks_are_refused() -> None:
    with Scheduler(workers=1) as scheduler:
        with pytest.raises(TypeError, match="function"):
            scheduler.submit(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="kind is 'urgent'; expected one of latency_critical, best_effort"):
            scheduler.submit(int, kind="urgent")
        with pytest.raises(ValueError, match="priority"):
            scheduler.submit(int, priority=1000)
        assert scheduler.get_metrics().queued == 0
    for options, text in (({"workers": 0}, "workers"), ({"workers": 1, "reserved": 1}, "reserved"), ({"gpu_id": -1}, "gpu_id")):
        with pytest.raises(ValueError, match=text):
            Scheduler(**options)  # type: ignore[arg-type]


TOML = """
workers = 3
reserved = 2

[classes.latency_critical]
priority = 50
slo_ms = 3600000

[classes.nightly]
kind = "best_effort"
priority = -20
"""

OBJECT = {
    "workers": 3,
    "reserved": 2,
    "classes": {
        "latency_critical": {"priority": 50, "slo_ms": 3600000},
        "nightly": {"kind": "best_effort", "priority": -20},
    },
}


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_configuration_names_workers_and_classes(tmp_path: Path, ending: str) -> None:
    if ending == "toml" and sys.version_info < (3, 11):
        pytest.importorskip("tomli")
    path = tmp_path / f"scheduler.{ending}"
    path.write_text(TOML if ending == "toml" else json.dumps(OBJECT))
    with Scheduler(config_file=path) as scheduler:
        scheduler.submit(int, kind="nightly").result(timeout=60)
        metrics = scheduler.get_metrics()
        assert metrics.workers == 3
        assert list(metrics.classes) == ["latency_critical", "best_effort", "nightly"]
        assert metrics.classes["nightly"].completed == 1
        classes = scheduler._configuration.classes
        assert (classes["latency_critical"].priority, classes["latency_critical"].slo_ms) == (50, 3_600_000)
        assert (classes["nightly"].priority, classes["nightly"].kind) == (-20, "best_effort")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"worker": 1}, "worker is unknown"),
        ({"workers": "2"}, "workers is a whole number"),
        ({"workers": 2, "reserved": 2}, "reserved is 2"),
        ({"classes": {"nightly": {}}}, "classes.nightly.kind is None"),
        ({"classes": {"best_effort": {"kind": "latency_critical"}}}, "expected best_effort"),
        ({"classes": {"best_effort": {"priority": 999}}}, "classes.best_effort.priority is 999"),
        ({"classes": {"best_effort": {"slo": 9}}}, "classes.best_effort.slo is unknown"),
        ({"classes": [1]}, "classes is a table"),
        ([1], "expected an object"),
    ],
)
def test_mistake_in_the_configuration_is_named(tmp_path: Path, content: object, text: str) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=text) as mistake:
        Scheduler(config_file=path)
    assert str(path) in str(mistake.value)


def test_default_priorities_are_relative_to_those_of_xcli_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for own, expected in (("20", (30, 20)), ("250", (255, 250)), ("", (10, 0)), ("many", (10, 0))):
        monkeypatch.setenv("XSCHED_AUTO_XQUEUE_PRIORITY", own)
        with Scheduler(workers=1) as scheduler:
            classes = scheduler._configuration.classes
        assert (classes["latency_critical"].priority, classes["best_effort"].priority) == expected


def test_forgotten_scheduler_finishes_at_exit_of_the_program() -> None:
    # The task ends only when the main thread has nothing left to do.
    code = """
import giveway, threading
giveway.Scheduler(workers=1).submit(lambda: (threading.main_thread().join(), print("ran")))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=dict(os.environ), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
