#!/usr/bin/env python3
"""Tests 3 and 4: an urgent model with requests at random times, beside a batch model back to back.

usage: tests_3_and_4.py [--test N] [--seconds N] [--level N] [--set NAME=VALUE...] [--kernels FILE] [--client auto|hip|pytorch]

Runs each model alone, both without scheduling (`xcli off`), and both under HPF. Then it prints what the test asks for, and
whether that was met.
"""

from __future__ import annotations

import argparse
import bisect
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import python_client
from two_programs import Program, require_xcli, run, run_together, suspended, unscheduled, xcli


class Model(NamedTuple):
    trace: str
    #: The batch is so many times as large as the recorded one.
    scale: int = 1


class Test(NamedTuple):
    about: str
    models: dict[str, Model]
    #: Requests a second.
    rate: float


TESTS = {
    3: Test(
        "BERT at batch 8, 10 requests a second, beside the same model back to back",
        {"urgent": Model("bert_bs8"), "batch": Model("bert_bs8")},
        10,
    ),
    4: Test(
        "ResNet-18 at batch 1, 20 requests a second, beside ResNet-50 at batch 1024 back to back",
        {"urgent": Model("resnet18_bs1"), "batch": Model("resnet50_bs256", 4)},
        20,
    ),
}
#: What both tests ask for: the urgent model's p99 over that alone at most, the batch model's rate over that alone at least.
MOST_P99, LEAST_RATE = 1.10, 0.99
UNSCHEDULED, SCHEDULED = "without scheduling", "with HPF"


def arrivals(test: Test, seconds: float) -> list[float]:
    """When requests are due: at random, and at the same times in each phase."""
    numbers, time = random.Random(1), 0.0
    due: list[float] = []
    while (time := time + numbers.expovariate(test.rate)) < seconds or not due:
        due.append(time)
    return due


def overtaken(urgent: dict[str, Any], batch: dict[str, Any]) -> tuple[int, int]:
    """How many requests came while a batch inference was under way, and how many of these were done before it."""
    came = before = 0
    for due, done in urgent["requests"]:
        # Inferences run in order, so the one under way is the first one that was not done.
        under_way = bisect.bisect(batch["done"], due)
        if under_way < len(batch["done"]):
            came += 1
            before += done < batch["done"][under_way]
    return came, before


def word(came: int, before: int) -> str:
    if came == 0:
        return "none"
    return "most" if before * 2 > came else "few" if before * 3 <= came else "some"


class Phases:
    """Runs the programs of a test, and prints what they have measured."""

    def __init__(self, number: int, arguments: argparse.Namespace, passed: list[str]) -> None:
        self._number, self._test = number, TESTS[number]
        self._arguments = arguments
        self._passed = [*passed, "--test", str(number)]
        self._options = ["--level", str(arguments.level)]
        self._begun = False
        self.correct = True

    def _run(self, title: str, roles: list[str]) -> dict[str, dict[str, Any]]:
        programs = [Program(role, self._passed, self._options) for role in roles]
        if not self._begun:
            print(f"test {self._number}: {self._test.about}\n{programs[0].label}", flush=True)
        self._begun = True
        measured = run_together(programs, self._arguments.seconds)
        self.correct = self.correct and all(values["correct"] for values in measured.values())
        for role in roles:
            print(f"  {title + ',':19} {role:6}  {self._figures(role, measured[role])}", flush=True)
        return measured

    def _figures(self, role: str, measured: dict[str, Any]) -> str:
        if role == "batch":
            return f"{measured['rate']:.2f} inferences a second"
        p50, p99 = (python_client.percentile(measured["latencies"], percent) for percent in (50, 99))
        return f"{len(measured['latencies'])} requests, p50 {p50:.2f} ms, p99 {p99:.2f} ms"

    def run(self) -> None:
        alone = {role: self._run("alone", [role])[role] for role in ("urgent", "batch")}
        if not alone["batch"]["rate"]:
            sys.exit("--seconds is too short: the batch model has done no inference.")
        with unscheduled():
            together = {UNSCHEDULED: self._run(UNSCHEDULED, ["batch", "urgent"])}
        together[SCHEDULED] = self._run(SCHEDULED, ["batch", "urgent"])
        self._judge(alone, together[SCHEDULED])
        for title, measured in together.items():
            print(f"test {self._number}, {title}: the batch model was {suspended(measured)}")
        for title, measured in together.items():
            came, before = overtaken(measured["urgent"], measured["batch"])
            which = f"{word(came, before)} of the batch inferences under way"
            print(f"  {title + ',':19} {before} of {came} requests overtook the inference under way")
            print(f"test {self._number}, {title}: urgent requests overtook {which}", flush=True)

    def _judge(self, alone: dict[str, Any], together: dict[str, Any]) -> None:
        """Prints the targets."""
        p99_alone, p99 = (python_client.percentile(measured["urgent"]["latencies"], 99) for measured in (alone, together))
        kept = together["batch"]["rate"] / alone["batch"]["rate"]
        # The part of the device's time that the urgent model's kernels take, by the recording.
        requests = len(together["urgent"]["latencies"])
        taken = requests * python_client.device_ms(*self._test.models["urgent"]) / 1e3 / self._arguments.seconds
        self._target("p99 of the urgent model over alone", p99 / p99_alone, "<=", MOST_P99)
        self._target("rate of the batch model over alone", kept, ">=", LEAST_RATE)
        self._target("the same in the time that the urgent kernels leave", kept / (1 - taken), ">=", LEAST_RATE)

    @staticmethod
    def _target(what: str, value: float, sign: str, limit: float) -> None:
        met = value <= limit if sign == "<=" else value >= limit
        print(f"  {what:51} {value:.3f}, target {sign} {limit:.2f}: {'met' if met else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description="tests 3 and 4: an urgent model beside a batch model")
    parser.add_argument("--test", type=int, choices=list(TESTS), help="only this test (both)")
    parser.add_argument("--seconds", type=float, default=8, help="length of each phase (8)")
    parser.add_argument("--level", type=int, choices=[1, 2, 3], default=1, help="preemption level (1)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of HPF")
    parser.add_argument("--role", choices=["urgent", "batch"], help=argparse.SUPPRESS)
    python_client.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.seconds <= 0:
        parser.error("--seconds must be positive")
    if arguments.role:
        test = TESTS[arguments.test]
        model = test.models[arguments.role]
        return run(arguments.role, arguments, model.trace, model.scale, arrivals(test, arguments.seconds))
    require_xcli()
    settings = (setting.partition("=") for setting in arguments.set)
    xcli("policy", "set", "HPF", *(word for name, _, value in settings for word in (f"--{name}", value)))

    correct = True
    for number in [arguments.test] if arguments.test else list(TESTS):
        phases = Phases(number, arguments, sys.argv[1:])
        phases.run()
        correct = correct and phases.correct
    print(f"results: {'correct' if correct else 'wrong'}")
    sys.exit(0 if correct else 1)


if __name__ == "__main__":
    main()
