"""Forked and spawned processes, and processes without queues or with the library switched off."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from conftest import Program, listed, wait_for

Start = Callable[..., Program]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_each_worker_has_its_own_priority(program: Start, method: str) -> None:
    parent = program("workers.py", method, "3", "7")
    ready = sorted(parent.step(), key=lambda worker: int(worker[1]))
    assert [worker[1:] for worker in ready] == [[3, 3, 103], [7, 7, 107]]
    for pid, own, _, _ in ready:

        def seen(pid: int = pid, own: int = own) -> bool:
            return sorted(row["priority"] for row in listed(pid).values()) == [own, own + 100]

        wait_for(seen, f"the priorities of the worker with {own}")
    parent.go_on()
    assert parent.step() == [0, 0]
    assert parent.end() == 0


def test_initializer_of_a_pool_sets_the_priority(program: Start) -> None:
    parent = program("workers.py", "pool", "9")
    assert parent.step() == [9, 9, 9, 9]
    assert parent.end() == 0


def test_child_of_a_fork_has_nothing_of_its_parent(program: Start) -> None:
    parent = program("fork_inside.py")
    said: dict[str, Any] = parent.step()
    assert said.pop("queue") == "kXSchedErrorNotFound"
    assert "parent" in said.pop("scheduler")
    assert said == {"exit code": 0, "after": 0, "again": 20, "scheduled": 5}
    parent.go_on()
    assert parent.end() == 0


def test_queues_are_made_where_the_environment_makes_none(program: Start) -> None:
    bare = program("bare.py", changes={"XSCHED_AUTO_XQUEUE": None})
    said = bare.step()
    assert said == {
        "active": True,
        "before": 0,
        "inside": [10, 20],
        "after": [0, 0],
        "queues": 2,
        "local": "FAIR",
        "warnings": [],
        "here": True,
    }
    assert bare.end() == 0


def test_library_that_is_switched_off_is_said_once(program: Start) -> None:
    bare = program("bare.py", changes={"XSCHED_DISABLE": "1"})
    said = bare.step()
    (warning,) = said.pop("warnings")
    assert "XSCHED_DISABLE" in warning
    assert said == {
        "active": False,
        "before": 0,
        "inside": [0, 0],
        "after": [0, 0],
        "queues": 0,
        "local": None,
        "here": True,
    }
    assert bare.end() == 0
