"""Without the preloaded library the package warns once and does nothing; wrong arguments are refused all the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

import giveway
from giveway import XResult
from xsched import XSched
from xsched.hip import XSchedHip

EVERYTHING = """
import threading
import giveway

with giveway.priority(10):
    pass

def work():
    with giveway.latency_critical(slo_ms=5, stream=7), giveway.best_effort():
        pass

thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
assert giveway.active() is False
assert giveway.queues() == []
assert giveway.stats() == giveway.ProcessStats()
assert giveway.policy() is None
assert giveway.policy("HPF") is None
assert giveway.policy("HPF", local=True) is None
giveway.hint_arrival(us=200)
giveway.thread_defaults(priority=3, cls="best-effort", deadline_us=10)
queue = giveway.stream(0x1000)
queue.priority = 4
assert queue.priority == 0
assert queue.stats() == giveway.QueueStats()
queue.suspend()
queue.resume()
queue.wait()
queue.configure(level=3, threshold=4)
with giveway.Scheduler() as scheduler:
    assert scheduler.submit(max, 1, 2).result(timeout=60) == 2
print("done")
"""


def python(code: str, *options: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], env={**os.environ, **changes}, capture_output=True, text=True, timeout=120
    )


def test_everything_does_nothing_and_one_warning_says_so() -> None:
    done = python(EVERYTHING, "-W", "always")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("Warning") == 1
    # The line of the program, not one of the package.
    assert "<string>:5: GivewayWarning: giveway does nothing in this process" in done.stderr
    assert "python -m giveway run" in done.stderr


def test_warning_that_is_an_error_is_raised_once() -> None:
    done = python(
        "import giveway\ntry:\n giveway.queues()\nexcept giveway.GivewayWarning:\n print('raised')\ngiveway.queues()",
        "-W",
        "error",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "raised\n", "")


def test_import_alone_says_nothing() -> None:
    done = python("import giveway, xsched, xsched.hip, xsched_hip", "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")


def test_library_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    source, other = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text("int XQueueCreate(void) { return 0; }\n")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(other)], check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    done = python("import giveway; print(giveway.active())", LD_PRELOAD=str(other))
    assert done.stdout == "False\n"
    assert "not giveway's, or is older" in done.stderr


def test_decorators_keep_the_function() -> None:
    @giveway.latency_critical(slo_ms=10)
    def add(a: int, b: int) -> int:
        return a + b

    @giveway.best_effort
    async def later(value: int) -> int:
        return value

    assert add(1, 2) == 3
    assert asyncio.run(later(4)) == 4
    with pytest.raises(ZeroDivisionError), giveway.priority(1):
        1 / 0  # noqa: B018


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ValueError, "priority is 256", lambda: giveway.priority(256)),
    (ValueError, "priority is -256", lambda: giveway.priority(-256)),
    (TypeError, "not float", lambda: giveway.priority(1.5)),  # type: ignore[arg-type]
    (TypeError, "not bool", lambda: giveway.priority(True)),
    (TypeError, "stream", lambda: giveway.priority(1, stream="0")),
    (TypeError, "stream", lambda: giveway.priority(1, stream=True)),
    (ValueError, "address", lambda: giveway.priority(1, stream=-1)),
    (ValueError, "slo_ms is 0.0", lambda: giveway.latency_critical(slo_ms=0)),
    (ValueError, "slo_ms is nan", lambda: giveway.latency_critical(slo_ms=float("nan"))),
    (TypeError, "slo_ms", lambda: giveway.latency_critical(slo_ms="10")),  # type: ignore[call-overload]
    (TypeError, "decorated", lambda: giveway.latency_critical(10)),  # type: ignore[call-overload]
    (TypeError, "decorated", lambda: giveway.best_effort(int)),
    (ValueError, "us is -5", lambda: giveway.hint_arrival(us=-5)),
    (ValueError, "expected none, latency-critical", lambda: giveway.thread_defaults(cls="urgent")),
    (ValueError, "deadline_us is -2", lambda: giveway.thread_defaults(deadline_us=-2)),
    (ValueError, "utilization is 101", lambda: giveway.thread_defaults(utilization=101)),
    (TypeError, "preemptible", lambda: giveway.thread_defaults(preemptible=1)),  # type: ignore[arg-type]
    (ValueError, "level is 0", lambda: giveway.stream(0).configure(level=0)),
    (ValueError, "wait is 'soon'", lambda: giveway.stream(0).suspend(wait="soon")),
    (ValueError, "no policy 'BEST'", lambda: giveway.policy("best")),
    (ValueError, "name a policy", lambda: giveway.policy(local=True)),
    (ValueError, "no parameters", lambda: giveway.policy("EDF", local=True, slack_ms=1)),
    (TypeError, "name", lambda: giveway.policy(3)),  # type: ignore[arg-type]
    (TypeError, "launch", lambda: XSched.HwCommandCreateCallback(None)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("kind", "text", "call"), REFUSED)
def test_wrong_arguments_are_refused_at_once(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_numbers_of_other_types_are_taken() -> None:
    class Number:
        def __index__(self) -> int:
            return 5

    with giveway.priority(Number()):  # type: ignore[arg-type]
        pass


def test_names_of_xsched_say_not_supported() -> None:
    assert XSchedHip.HipQueueCreate(0) == (XResult.kXSchedErrorNotSupported, 0)
    assert XSched.XQueueCreate(1, 1, 0) == (XResult.kXSchedErrorNotSupported, 0)
    assert XSched.XHintPriority(1, 1) == XResult.kXSchedErrorNotSupported
    assert XSched.HwCommandCreateCallback(lambda queue, data: 0) == (XResult.kXSchedErrorNotSupported, 0)


def test_scope_costs_no_state_without_the_library() -> None:
    scope = giveway.priority(10)
    with scope, scope:
        assert scope._open == []
