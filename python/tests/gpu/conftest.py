"""Tests inside of a process with the preloaded library, on a simulated GPU: scripts/test-python starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import hip
import pytest

import giveway
from giveway import _programs

HERE = Path(__file__).resolve().parent
# After this a condition counts as one that never comes.
LIMIT_S = 60


def pytest_sessionstart() -> None:
    if not giveway.active():
        pytest.exit("these tests need the preloaded library and a GPU: run scripts/test-python", returncode=3)


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Returns what the condition returns once that is true."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come within {LIMIT_S} s")


def xcli(*arguments: str) -> str:
    program = _programs.find("xcli")
    assert program is not None
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([program, *arguments], env=environment, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S)
    return done.stdout.decode()


def listed(pid: int) -> dict[int, Any]:
    """Returns the queues of a process as the server lists them, by their numbers."""
    clients = json.loads(xcli("list", "--json"))["clients"]
    return {queue["queue"]: queue for client in clients if client["pid"] == pid for queue in client["queues"]}


class Program:
    """A program of tests/gpu/programs. It prints a line of JSON for each step, and waits for a line before it goes on."""

    def __init__(self, name: str, *arguments: str, changes: Optional[dict[str, Optional[str]]] = None) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
        for variable, value in (changes or {}).items():
            if value is None:
                environment.pop(variable, None)
            else:
                environment[variable] = value
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "programs" / name), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait(LIMIT_S)}"
        return json.loads(line)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Returns the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(*arguments: Any, **options: Any) -> Program:
        started.append(Program(*arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def stream() -> Iterator[hip.Stream]:
    one = hip.Stream()
    yield one
    one.synchronize()
    one.destroy()


@pytest.fixture
def queue(stream: hip.Stream) -> giveway.Queue:
    return giveway.stream(stream)


@pytest.fixture(scope="session")
def memory() -> hip.Memory:
    return hip.Memory()
