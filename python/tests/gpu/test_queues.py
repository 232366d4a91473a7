"""Queues, streams, hints that stay, statistics, policies."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from typing import Any

import fakes
import hip
import pytest
from conftest import listed, wait_for

import giveway
from giveway._types import XResult


def test_stream_is_named_in_every_way(stream: hip.Stream) -> None:
    queue = giveway.stream(stream.cuda_stream)
    assert queue.handle != 0

    class WithPtr:
        ptr = stream.cuda_stream

    class WithHandle:
        handle = stream.cuda_stream

    for named in (stream, WithPtr(), WithHandle(), queue):
        assert giveway.stream(named) == queue
    assert queue in giveway.queues()
    assert queue != giveway.stream(0)


def test_current_stream_of_a_framework_is_meant(stream: hip.Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = giveway.stream(stream)
    for torch, asked in ((fakes.torch(), "public"), (fakes.torch(private=True), "private, device 0")):
        monkeypatch.setitem(sys.modules, "torch", torch)
        torch.current.handle = stream.cuda_stream
        with giveway.priority(10):
            assert queue.priority == 10
        assert torch.asked == [asked]
    unused = fakes.torch(initialized=False)
    monkeypatch.setitem(sys.modules, "torch", unused)
    assert giveway.stream() == giveway.stream(0)
    assert unused.asked == []
    cupy = fakes.cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    cupy.current.handle = stream.cuda_stream
    assert giveway.stream() == queue
    # A module in the middle of its import.
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    monkeypatch.setitem(sys.modules, "cupy", type(sys)("cupy"))
    assert giveway.stream() == giveway.stream(0)


def test_statistics_count_and_sum(stream: hip.Stream, queue: giveway.Queue, memory: hip.Memory) -> None:
    before = giveway.stats()
    for value in range(5):
        memory.fill(value, stream.cuda_stream)
    queue.wait()
    assert memory.bytes() == bytes([4]) * memory.size
    stats = queue.stats()
    assert (stats.handle, stats.direct + stats.deferred, stats.launched, stats.pending) == (queue.handle, 5, 5, 0)
    assert (stats.idle, stats.running, stats.level) == (True, True, 1)
    after = giveway.stats()
    assert after.active
    assert after.launched - before.launched >= 5
    assert after.launched == sum(one.launched for one in after.queues)
    assert queue.handle in [one.handle for one in after.queues]


def test_suspended_queue_keeps_or_drops_its_work(stream: hip.Stream, queue: giveway.Queue, memory: hip.Memory) -> None:
    memory.fill(1, stream.cuda_stream)
    queue.suspend(wait="all")
    memory.fill(2, stream.cuda_stream)
    stats = queue.stats()
    assert (stats.pending, stats.running, stats.suspensions) == (1, False, 1)
    queue.resume(drop=True)
    queue.wait()
    assert memory.bytes() == bytes([1]) * memory.size
    queue.suspend()
    memory.fill(3, stream.cuda_stream)
    queue.resume()
    queue.wait()
    assert memory.bytes() == bytes([3]) * memory.size


def test_hints_stay_and_the_server_lists_them(queue: giveway.Queue) -> None:
    queue.priority = -5
    queue.hint(cls="best_effort", deadline_us=700, utilization=30, preemptible=False)
    assert queue.priority == -5

    def found() -> list[Any]:
        rows = listed(os.getpid()).values()
        return [row for row in rows if row["priority"] == -5 and row["hints"]["deadline_us"] == 700]

    hints = wait_for(found, "the hints")[0]["hints"]
    assert (hints["utilization"], hints["preemptible"], hints["class"]) == (30, False, "BestEffort")
    queue.hint(cls="none", deadline_us=-1, priority=0)
    wait_for(lambda: not found(), "the end of the hints")


def test_arrival_is_announced_and_taken_back(stream: hip.Stream, queue: giveway.Queue) -> None:
    def announced() -> bool:
        return any(row["hints"]["arrival"] is not None for row in listed(os.getpid()).values())

    giveway.hint_arrival(us=60_000_000, stream=stream)
    wait_for(announced, "the announcement")
    giveway.hint_arrival(us=None, stream=stream)
    wait_for(lambda: not announced(), "the end of the announcement")


def test_defaults_of_a_thread_are_for_its_new_streams() -> None:
    priorities: dict[str, int] = {}

    def make(name: str) -> None:
        stream = hip.Stream()
        priorities[name] = giveway.stream(stream).priority
        stream.destroy()

    def work() -> None:
        giveway.thread_defaults(priority=42)
        make("in the thread")
        thread = threading.Thread(target=make, args=("in another thread",))
        thread.start()
        thread.join()
        giveway.thread_defaults(priority=0)
        make("later")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert priorities == {"in the thread": 42, "in another thread": 0, "later": 0}


def test_queue_that_ended_is_an_error_with_a_code() -> None:
    stream = hip.Stream()
    queue = giveway.stream(stream)
    stream.destroy()
    with pytest.raises(giveway.GivewayError, match="XQueueStats") as gone:
        queue.stats()
    assert gone.value.code == XResult.kXSchedErrorNotFound
    copied = pickle.loads(pickle.dumps(gone.value))
    assert (type(copied), copied.code, str(copied)) == (giveway.GivewayError, gone.value.code, str(gone.value))


def test_configuration_is_in_the_statistics(queue: giveway.Queue) -> None:
    assert queue.stats().threshold == 0
    queue.configure(threshold=4, batch_size=2)
    assert (queue.stats().threshold, queue.stats().batch_size) == (4, 2)
    with pytest.raises(ValueError, match="level is 4"):
        queue.configure(level=4)


def test_policy_is_asked_and_set_at_the_server() -> None:
    before = giveway.policy()
    assert before == "HPF"
    try:
        assert giveway.policy("edf", slack_ms=3.5) == "EDF"
        assert giveway.policy() == "EDF"
        with pytest.raises(ValueError, match="slack"):
            giveway.policy("EDF", slack_ms=-1)
        with pytest.raises(ValueError, match="no-such"):
            giveway.policy("EDF", no_such=1)
    finally:
        assert giveway.policy(before) == before


def test_server_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XSCHED_SOCKET", str(tmp_path / "none.sock"))
    assert giveway.policy() is None
    with pytest.raises(giveway.ServerError) as refused:
        giveway.policy("FAIR")
    assert "server" in str(refused.value)
