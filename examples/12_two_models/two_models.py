#!/usr/bin/env python3
"""Two programs with one model each: ResNet-18 at 20 requests a second, urgent, beside ResNet-50 with batches of 256.

usage: two_models.py [--seconds N] [--rate N] [--target-ms N] [--kernels FILE] [--client auto|hip|pytorch]

Runs each alone, both without scheduling (`xcli off`), and both under the policy of the server that runs. For each it prints the
latencies of the urgent model, and the rate of the batch model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import python_client
from two_programs import Program, require_xcli, run, run_together, suspended, unscheduled

MODELS = {"urgent": "resnet18_bs1", "batch": "resnet50_bs256"}


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
        measured = run_together(programs, self._arguments.seconds)
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
        arrivals = [number / arguments.rate for number in range(max(1, round(arguments.seconds * arguments.rate)))]
        return run(arguments.role, arguments, MODELS[arguments.role], 1, arrivals)
    require_xcli()

    phases = Phases(arguments, sys.argv[1:])
    phases.run("urgent model alone", ["urgent"])
    phases.run("batch model alone", ["batch"])
    with unscheduled():
        free = phases.run("together without scheduling", ["batch", "urgent"])
    scheduled = phases.run("together with HPF", ["batch", "urgent"])
    for title, measured in (("without scheduling", free), ("with HPF", scheduled)):
        print(f"{title}: the batch model was {suspended(measured)}")
    print(f"results: {'correct' if phases.correct else 'wrong'}")
    sys.exit(0 if phases.correct else 1)


if __name__ == "__main__":
    main()
