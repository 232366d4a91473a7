#!/usr/bin/env python3
"""Two programs with one model each: ResNet-18 at 20 requests a second, urgent, beside ResNet-50 with batches of 256.

usage: two_models.py [--seconds N] [--rate N] [--target-ms N] [--kernels FILE] [--client auto|hip|pytorch]

Runs each alone, both without scheduling (`xcli off`), and both under the policy of the server that runs. For each it prints the
latencies of the urgent model, and the rate of the batch model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import python_client

MODELS = {"urgent": "resnet18_bs1", "batch": "resnet50_bs256"}
PRIORITIES = {"urgent": 10, "batch": 1}
BATCHES_AHEAD = 2


def serve(model: Any, seconds: float, rate: float) -> dict[str, Any]:
    """The urgent program: requests at a fixed rate. Latencies count from the moment at which a request is due."""
    begin, latencies = time.monotonic(), []
    for number in range(max(1, round(seconds * rate))):
        due = begin + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        model.submit().wait()
        latencies.append((time.monotonic() - due) * 1e3)
    return {"latencies": latencies}


def train(model: Any, end: threading.Event) -> dict[str, Any]:
    """The batch program: batches back to back, until it is told to end."""
    begin, done = time.monotonic(), 0
    ahead: deque[Any] = deque()
    while not end.is_set():
        ahead.append(model.submit())
        if len(ahead) == BATCHES_AHEAD:
            ahead.popleft().wait()
            done += 1
    rate = done / (time.monotonic() - begin)
    while ahead:
        ahead.popleft().wait()
    return {"rate": rate}


def set_at_end_of_input(event: threading.Event) -> None:
    sys.stdin.read()
    event.set()


def program(role: str, arguments: argparse.Namespace) -> None:
    """One of the two programs. Says when it is ready, begins when it gets a line, and says what it has measured.

    The batch program ends when its input ends.
    """
    giveway = python_client.import_giveway()
    client = python_client.connect(arguments)
    model = client.model(MODELS[role], client.stream())
    model.submit().wait()
    print(json.dumps({"label": client.label}), flush=True)
    if not sys.stdin.readline():
        sys.exit("The program that started this one has ended.")
    if role == "urgent":
        measured = serve(model, arguments.seconds, arguments.rate)
    else:
        end = threading.Event()
        threading.Thread(target=set_at_end_of_input, args=(end,), daemon=True).start()
        measured = train(model, end)
    measured["suspensions"] = giveway.stats().suspensions
    measured["correct"] = model.check()
    print(json.dumps(measured), flush=True)


class Program:
    """A program under `xcli run`."""

    def __init__(self, role: str, arguments: list[str]) -> None:
        call = ["xcli", "run", "--strict", "--priority", str(PRIORITIES[role]), "--", sys.executable, "-B", __file__, *arguments]
        self.role = role
        self.process = subprocess.Popen([*call, "--role", role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def xcli(*words: str) -> None:
    done = subprocess.run(["xcli", *words], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"xcli {' '.join(words)} has failed. Its message is above: start a server by `xserver HPF`, or use run.sh.")


class Phases:
    """Runs programs, and prints what they have measured."""

    def __init__(self, arguments: argparse.Namespace, passed: list[str]) -> None:
        self._arguments = arguments
        self._passed = passed
        self._labelled = False
        #: The rate of the batch program alone.
        self._alone: Optional[float] = None
        self.correct = True

    def run(self, title: str, roles: list[str]) -> dict[str, dict[str, Any]]:
        programs = [Program(role, self._passed) for role in roles]
        if not self._labelled:
            print(programs[0].label, flush=True)
            self._labelled = True
        for program in programs:
            program.begin()
        if "urgent" not in roles:
            time.sleep(self._arguments.seconds)
        # The urgent program ends by itself, and the batch program after it.
        measured = {program.role: program.end() for program in reversed(programs)}
        self.correct = self.correct and all(values["correct"] for values in measured.values())
        print(f"{title}:")
        for role in roles:
            print(f"  {role:6} {MODELS[role]:14} {self._text(role, measured[role])}", flush=True)
        return measured

    def _text(self, role: str, measured: dict[str, Any]) -> str:
        if role == "batch":
            self._alone = self._alone or measured["rate"]
            share = measured["rate"] / self._alone * 100 if self._alone else 0
            return f"{measured['rate']:6.1f} batches a second, {share:.1f} % of its rate alone"
        latencies, target = measured["latencies"], self._arguments.target_ms
        p50, p99 = (python_client.percentile(latencies, percent) for percent in (50, 99))
        verdict = "met" if p99 <= target else "missed"
        return f"{len(latencies):4} requests, p50 {p50:.1f} ms, p99 {p99:.1f} ms, target {target:g} ms: {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description="an urgent and a batch model in two programs")
    parser.add_argument("--seconds", type=float, default=8, help="length of each of the four phases (8)")
    parser.add_argument("--rate", type=float, default=20, help="urgent requests a second (20)")
    parser.add_argument("--target-ms", type=float, default=50, help="target for the p99 of the urgent model (50)")
    parser.add_argument("--role", choices=list(MODELS), help=argparse.SUPPRESS)
    python_client.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.seconds <= 0 or arguments.rate <= 0:
        parser.error("--seconds and --rate must be positive")
    if arguments.role:
        return program(arguments.role, arguments)
    if shutil.which("xcli") is None:
        sys.exit("xcli is not in PATH: build giveway (`make build`), and add target/release to PATH.")

    phases = Phases(arguments, sys.argv[1:])
    phases.run("urgent model alone", ["urgent"])
    phases.run("batch model alone", ["batch"])
    xcli("off")
    try:
        unscheduled = phases.run("together without scheduling", ["batch", "urgent"])
    finally:
        xcli("on")
    scheduled = phases.run("together with HPF", ["batch", "urgent"])
    for title, measured in (("without scheduling", unscheduled), ("with HPF", scheduled)):
        suspended = "suspended" if measured["batch"]["suspensions"] else "never suspended"
        print(f"{title}: the batch model was {suspended}")
    print(f"results: {'correct' if phases.correct else 'wrong'}")
    sys.exit(0 if phases.correct else 1)


if __name__ == "__main__":
    main()
