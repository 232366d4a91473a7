#!/usr/bin/env python3
"""One process that serves three models: an urgent one, to which requests come, and two with batch work that never ends.

usage: serve.py [--requests N] [--rate N] [--arrivals poisson|fixed] [--plot FILE] [--kernels FILE] [--client auto|hip|pytorch]

Each model has a thread and a stream. The program serves the same requests twice, first without priorities and then with them,
and prints latencies. An urgent request has overtaken a batch request if that was submitted earlier, and is not done when the
urgent request is.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import plot
import python_client

URGENT, BATCH = "resnet50_bs256", ["elementwise_bs1", "token_step_bs1"]
# An urgent request is two inferences of 34 ms of the device, and a batch request one of 2 ms. So all that are ahead are done
# during an urgent request, unless they are kept back.
URGENT_INFERENCES, KEPT_AHEAD = 2, 8
URGENT_PRIORITY, BATCH_PRIORITY = 10, -10
SEED = 5


@dataclass
class Served:
    """What a phase has measured. Latencies are in milliseconds."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    #: Batch requests that were not done when an urgent request was submitted; of these, when that was done.
    earlier: int = 0
    overtaken: int = 0

    def share(self) -> str:
        if self.overtaken * 3 >= self.earlier * 2:
            return "most"
        return "few" if self.overtaken * 3 <= self.earlier else "some"


class BatchThread(threading.Thread):
    """Keeps requests of a batch model ahead until it is told to stop."""

    def __init__(self, model: Any, part: AbstractContextManager[Any]) -> None:
        super().__init__(daemon=True)
        self._model = model
        self._part = part
        self._stop_now = threading.Event()
        self._failed: Optional[BaseException] = None
        #: Set when there is as much ahead as there will be.
        self.busy = threading.Event()
        self.ahead: deque[Any] = deque()
        self.latencies: list[float] = []

    def run(self) -> None:
        try:
            with self._part:
                self._serve()
        except BaseException as error:
            self._failed = error
        self.busy.set()

    def _serve(self) -> None:
        submitted: deque[float] = deque()
        while not self._stop_now.is_set() or self.ahead:
            if not self._stop_now.is_set() and len(self.ahead) < KEPT_AHEAD:
                submitted.append(time.monotonic())
                self.ahead.append(self._model.submit())
                continue
            self.busy.set()
            self.ahead[0].wait()
            self.ahead.popleft()
            self.latencies.append((time.monotonic() - submitted.popleft()) * 1e3)

    def end(self) -> None:
        self._stop_now.set()
        self.join()
        if self._failed is not None:
            raise self._failed


def arrivals(arguments: argparse.Namespace) -> list[float]:
    """When the urgent requests come, in seconds: the same in each phase."""
    numbers = random.Random(SEED)
    times = [0.0]
    for _ in range(arguments.requests - 1):
        gap = numbers.expovariate(arguments.rate) if arguments.arrivals == "poisson" else 1 / arguments.rate
        times.append(times[-1] + gap)
    return times


def serve(models: dict[str, Any], parts: dict[str, AbstractContextManager[Any]], times: list[float]) -> Served:
    """Serves all requests of the urgent model beside the batch models. `parts` has the hints of each model."""
    served = Served({name: [] for name in models})
    batch = {name: BatchThread(models[name], parts[name]) for name in BATCH}
    # Each part is open for the whole phase. While no stream outranks that of a batch model, the library launches all of its
    # requests at once, and what is launched cannot be kept back.
    with parts[URGENT]:
        for thread in batch.values():
            thread.start()
        for thread in batch.values():
            thread.busy.wait()
        begin = time.monotonic()
        for moment in times:
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            earlier = [request for thread in batch.values() for request in list(thread.ahead) if not request.done()]
            inferences = [models[URGENT].submit() for _ in range(URGENT_INFERENCES)]
            inferences[-1].wait()
            served.earlier += len(earlier)
            served.overtaken += sum(not request.done() for request in earlier)
            # From its arrival. A request that came while another one was served has waited for that.
            served.latencies[URGENT].append((time.monotonic() - begin - moment) * 1e3)
        for name, thread in batch.items():
            thread.end()
            served.latencies[name] = thread.latencies
    return served


def report(title: str, served: Served) -> None:
    print(f"{title}:")
    for name, latencies in served.latencies.items():
        role = "urgent" if name == URGENT else "batch"
        p50, p99 = (python_client.percentile(latencies, percent) for percent in (50, 99))
        print(f"  {name:16} {role:7} {len(latencies):6} requests   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms")
    print(f"{title}: urgent requests overtook {served.share()} of the earlier batch requests", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="three models in one process, without and with priorities")
    parser.add_argument("--requests", type=int, default=15, help="number of urgent requests in each phase (15)")
    parser.add_argument("--rate", type=float, default=3, help="urgent requests a second (3)")
    parser.add_argument("--arrivals", choices=["poisson", "fixed"], default="poisson", help="how they come (poisson)")
    parser.add_argument("--plot", metavar="FILE", help="write the latencies of the urgent model as SVG")
    python_client.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.requests < 1 or arguments.rate <= 0:
        parser.error("--requests and --rate must be positive")
    giveway = python_client.import_giveway()
    client = python_client.connect(arguments)
    print(client.label, flush=True)

    streams = {name: client.stream() for name in [URGENT, *BATCH]}
    models = {name: client.model(name, stream) for name, stream in streams.items()}
    for model in models.values():
        # The code is on the device now.
        model.submit().wait()
    equal: dict[str, Any] = {name: nullcontext() for name in models}
    ranked = {
        name: giveway.priority(URGENT_PRIORITY if name == URGENT else BATCH_PRIORITY, stream=stream)
        for name, stream in streams.items()
    }
    phases = {}
    for title, parts in (("without priorities", equal), ("with priorities", ranked)):
        phases[title] = serve(models, parts, arrivals(arguments))
        report(title, phases[title])
    correct = False not in [model.check() for model in models.values()]
    print(f"results: {'correct' if correct else 'wrong'}")
    if arguments.plot:
        curves = {title: served.latencies[URGENT] for title, served in phases.items()}
        Path(arguments.plot).write_text(plot.tail_latency(curves), encoding="utf-8")
    sys.exit(0 if correct else 1)


if __name__ == "__main__":
    main()
