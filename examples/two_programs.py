"""What examples with an urgent and a batch program share: the programs themselves, and how they are started under `xcli run`.

The urgent program answers requests, and its latencies count from the moment at which a request is due. The batch program runs
its model back to back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import python_client

PRIORITIES = {"urgent": 10, "batch": 1}
BATCHES_AHEAD = 2


def serve(model: Any, arrivals: Iterable[float]) -> dict[str, Any]:
    """Answers requests that are due so many seconds after the beginning: `latencies` in milliseconds, `requests` (due, done)."""
    begin, requests = time.monotonic(), []
    for arrival in arrivals:
        due = begin + arrival
        time.sleep(max(0.0, due - time.monotonic()))
        model.submit().wait()
        requests.append((due, time.monotonic()))
    return {"latencies": [(done - due) * 1e3 for due, done in requests], "requests": requests}


def train(model: Any, end: threading.Event) -> dict[str, Any]:
    """Runs batches back to back, until it is told to end: their `rate` a second, and when each was `done`."""
    begin = time.monotonic()
    ahead: deque[Any] = deque()
    done = []
    while not end.is_set():
        ahead.append(model.submit())
        if len(ahead) == BATCHES_AHEAD:
            ahead.popleft().wait()
            done.append(time.monotonic())
    rate = len(done) / (time.monotonic() - begin)
    while ahead:
        ahead.popleft().wait()
        done.append(time.monotonic())
    return {"rate": rate, "done": done}


def _set_at_end_of_input(event: threading.Event) -> None:
    sys.stdin.read()
    event.set()


def run(role: str, arguments: argparse.Namespace, model: str, scale: int, arrivals: Iterable[float]) -> None:
    """One of the two programs. Says when it is ready, begins when it gets a line, and says what it has measured.

    The batch program ends when its input ends.
    """
    giveway = python_client.import_giveway()
    client = python_client.connect(arguments)
    network = client.model(model, client.stream(), scale)
    network.submit().wait()
    print(json.dumps({"label": client.label}), flush=True)
    if not sys.stdin.readline():
        sys.exit("The program that started this one has ended.")
    if role == "urgent":
        measured = serve(network, arrivals)
    else:
        end = threading.Event()
        threading.Thread(target=_set_at_end_of_input, args=(end,), daemon=True).start()
        measured = train(network, end)
    measured["suspensions"] = giveway.stats().suspensions
    measured["correct"] = network.check()
    print(json.dumps(measured), flush=True)


class Program:
    """A program under `xcli run`: the same script, with `--role`."""

    def __init__(self, role: str, arguments: list[str], options: Iterable[str] = ()) -> None:
        call = ["xcli", "run", "--strict", "--priority", str(PRIORITIES[role]), *options, "--"]
        call += [sys.executable, "-B", sys.argv[0], *arguments, "--role", role]
        self.role = role
        self.process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.label = self.read()["label"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"The {self.role} program has ended with exit code {self.process.wait()}. Its message is above.")
        values: dict[str, Any] = json.loads(line)
        return values

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Lets the batch program end, or waits for the end of the urgent one."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        measured = self.read()
        if self.process.wait() != 0:
            sys.exit(f"The {self.role} program has ended with exit code {self.process.returncode}. Its message is above.")
        return measured


def run_together(programs: list[Program], seconds: float) -> dict[str, dict[str, Any]]:
    """Lets programs begin, and returns what each has measured. A batch program alone runs for so many seconds."""
    for program in programs:
        program.begin()
    if all(program.role != "urgent" for program in programs):
        time.sleep(seconds)
    # The urgent program ends by itself, and the batch program after it.
    return {program.role: program.end() for program in sorted(programs, key=lambda program: program.role, reverse=True)}


def xcli(*words: str) -> None:
    done = subprocess.run(["xcli", *words], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(
            f"xcli {' '.join(words)} has failed. Its message is above. "
            "If no server runs, start one by `xserver HPF`, or use run.sh."
        )


def require_xcli() -> None:
    if shutil.which("xcli") is None:
        sys.exit("xcli is not in PATH: build giveway (`make build`), and add target/release to PATH.")


@contextlib.contextmanager
def unscheduled() -> Iterator[None]:
    """The server suspends no program meanwhile."""
    xcli("off")
    try:
        yield
    finally:
        xcli("on")


def suspended(measured: dict[str, Any]) -> str:
    """What happened to the batch program, for a line of output."""
    return "suspended" if measured["batch"]["suspensions"] else "never suspended"
