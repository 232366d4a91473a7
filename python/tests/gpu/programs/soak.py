"""A server with two models and four worker processes, whose work is suspended at random.

usage: soak.py [--start fork|spawn] [--seconds N] [--requests N] [--seed N] [--workers N]

Each worker has both models, urgent and batch, each with a stream and a thread. Three things suspend their work: the server,
as the urgent model outranks the batch model; the library at random (XSCHED_TEST=chaos); and `xcli suspend`, which this
program calls for workers at random. Every result is compared with what the processor computes. It goes on for so many
seconds and requests for each model of each worker, and until each worker was suspended from outside. GIVEWAY_TEST_KERNELS
names the code object of examples/kernels. The last line is "N passed, N failed".
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from typing import Any, Optional

import models

import giveway
from giveway import _programs

# Of <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
# A worker that says nothing for so long has lost its requests.
LIMIT_S = 120
# Seconds between two suspensions from outside, and how long each lasts.
BETWEEN_S, SUSPENDED_S = (0.02, 0.4), (0.005, 0.15)
#: Seconds that an urgent client pauses after some requests, so that batch work gets the device.
PAUSE_S = (0.005, 0.08)


def serve_model(model: models.Model, requests: Any, fault: Optional[str]) -> None:
    try:
        model.serve(requests, fault)
    except Exception:
        # What is missing then is counted on the other side.
        requests.send(("error", traceback.format_exc()))
    finally:
        requests.close()


def work(code_object: str, requests: list[Any], said: Any, fault: Optional[str]) -> None:
    """A worker process."""
    import hip

    # A worker does not outlive this program, whatever ends it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    try:
        models.permit_suspensions()
        kernels = hip.Kernels(code_object)
        mine = [models.Model(kind, kernels) for kind in models.KINDS]
        said.send("ready")
        threads = [
            threading.Thread(target=serve_model, args=(model, connection, fault if model.kind.name == "urgent" else None))
            for model, connection in zip(mine, requests)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said.send(giveway.stats().suspensions)
    except Exception:
        said.send(traceback.format_exc())
        raise


class Tally:
    """What went right and wrong, of all clients and the controller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def add(self, what: str, count: int = 1, message: str = "") -> None:
        with self._lock:
            self.counts[what] += count
        if message:
            print(message, file=sys.stderr, flush=True)


class Client(threading.Thread):
    """Sends the requests of one model to one worker, and checks the results."""

    def __init__(self, name: str, kind: str, connection: Any, plan: Plan, tally: Tally, seed: str) -> None:
        super().__init__(name=name)
        self._kind, self._connection, self._plan, self._tally = kind, connection, plan, tally
        self._random = random.Random(seed)
        self._first = self._random.getrandbits(64)
        self._sent: deque[int] = deque()
        self._next = 0
        self._words = models.START
        #: True if the worker takes no request, gives no answer, or has failed.
        self.broken = False

    def run(self) -> None:
        try:
            self._exchange()
        except Exception:
            self._tally.add("errors", message=f"{self.name}: {traceback.format_exc()}")

    def _exchange(self) -> None:
        while not self.broken and not self._plan.is_done(self._next - len(self._sent)):
            burst = self._random.randint(1, 12)
            for _ in range(burst):
                if self.broken:
                    return
                self._send()
                if len(self._sent) == models.AHEAD:
                    self._receive()
            if self._kind == "urgent":
                while self._sent:
                    self._receive()
                time.sleep(self._random.uniform(*PAUSE_S))
        while self._sent:
            self._receive()

    def close(self) -> None:
        """Lets the worker's thread end."""
        # If the worker has ended before, that was counted.
        with contextlib.suppress(OSError):
            self._connection.send(None)

    def _send(self) -> None:
        number = self._next
        try:
            self._connection.send((number, models.value_of(self._first, number)))
        except OSError as error:
            self._break(f"{self.name}: request {number} was not taken: {error}")
            return
        self._next += 1
        self._sent.append(number)

    def _receive(self) -> None:
        try:
            answer = self._connection.recv() if self._connection.poll(LIMIT_S) else None
        except (OSError, EOFError):
            answer = None
        if answer is None:
            self._break(f"{self.name}: no answer to the requests {list(self._sent)}")
        elif answer[0] == "error":
            self._break(f"{self.name}: {answer[1]}")
        else:
            self._check(*answer)

    def _break(self, message: str) -> None:
        if not self.broken:
            self._tally.add("errors", message=message)
        self.broken = True
        self._tally.add("lost", len(self._sent))
        self._sent.clear()

    def _check(self, number: int, result: bytes) -> None:
        if number not in self._sent:
            self._tally.add("wrong", message=f"{self.name}: a second answer to request {number}, or one too many")
            return
        ordered = number == self._sent[0]
        self._sent.remove(number)
        words = models.words_of(result)
        found = "reordered" if not ordered else self._judge(number, words)
        # What follows is compared with what the device has now, so that a fault counts once.
        self._words = words
        self._tally.add(found, message="" if found == self._kind else f"{self.name}: request {number}: {found}")

    def _judge(self, number: int, words: tuple[int, ...]) -> str:
        def after(other: int) -> tuple[int, ...]:
            return models.step(self._words, models.value_of(self._first, other))

        if words == after(number):
            return self._kind
        if words == self._words:
            return "lost"
        near = range(number - models.AHEAD, number + models.AHEAD + 1)
        return "reordered" if any(words == after(other) for other in near if other != number) else "wrong"


class Plan:
    """When the clients have done enough."""

    def __init__(self, seconds: float, requests: int) -> None:
        self._end = time.monotonic() + seconds
        self._requests = requests
        #: Set when each worker was suspended from outside, or cannot be.
        self.suspended = threading.Event()

    def is_done(self, answered: int) -> bool:
        return answered >= self._requests and time.monotonic() >= self._end and self.suspended.is_set()


class Controller(threading.Thread):
    """Suspends workers from outside and resumes them, at random."""

    def __init__(self, workers: list[int], plan: Plan, tally: Tally, seed: str) -> None:
        super().__init__(name="controller")
        self._workers, self._plan, self._tally = workers, plan, tally
        self._random = random.Random(seed)
        self._program = _programs.find("xcli") or "xcli"
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            self._suspend_and_resume()
        except Exception:
            self._tally.add("errors", message=f"{self.name}: {traceback.format_exc()}")
        finally:
            self._plan.suspended.set()

    def _suspend_and_resume(self) -> None:
        missing = set(self._workers)
        while not self._ending.is_set():
            chosen = self._random.sample(self._workers, self._random.randint(1, len(self._workers)))
            suspended = [pid for pid in chosen if self._xcli("suspend", pid)]
            time.sleep(self._random.uniform(*SUSPENDED_S))
            resumed = [pid for pid in suspended if self._xcli("resume", pid)]
            self._tally.add("from outside", len(resumed))
            missing -= set(resumed)
            if not missing or len(resumed) < len(chosen):
                self._plan.suspended.set()
            self._ending.wait(self._random.uniform(*BETWEEN_S))

    def _xcli(self, command: str, pid: int) -> bool:
        # xcli calls no HIP, so it needs no library.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        call = [self._program, command, str(pid)]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            self._tally.add("errors", message=f"xcli {command} {pid}: {done.stderr.strip()}")
        return done.returncode == 0

    def stop(self) -> None:
        self._ending.set()
        self.join()


def soak(arguments: argparse.Namespace, code_object: str) -> Tally:
    tally = Tally()
    context: Any = multiprocessing.get_context(arguments.start)
    processes: list[Any] = []
    said: list[Any] = []
    served: list[list[Any]] = []
    for _ in range(arguments.workers):
        pairs = [context.Pipe() for _ in models.KINDS]
        here, there = context.Pipe(duplex=False)
        call = (code_object, [pair[1] for pair in pairs], there, arguments.fault if not processes else None)
        process = context.Process(target=work, args=call, daemon=True)
        process.start()
        for connection in (there, *(pair[1] for pair in pairs)):
            connection.close()
        processes.append(process)
        said.append(here)
        served.append([pair[0] for pair in pairs])
    # No thread begins before the last fork.
    for connection in said:
        answer = hear(connection)
        if answer != "ready":
            tally.add("errors", message=f"a worker has not begun: {answer}")
            return tally
    plan = Plan(arguments.seconds, arguments.requests)
    controller = Controller([process.pid for process in processes], plan, tally, f"{arguments.seed} controller")
    clients = [
        Client(f"worker {worker}, {kind.name}", kind.name, connection, plan, tally, f"{arguments.seed} {worker} {kind.name}")
        for worker, connections in enumerate(served)
        for kind, connection in zip(models.KINDS, connections)
    ]
    for thread in (*clients, controller):
        thread.start()
    for client in clients:
        client.join()
    # The controller ends before the workers do: a process that has ended cannot be suspended.
    controller.stop()
    for client in clients:
        client.close()
    for number, (process, connection) in enumerate(zip(processes, said)):
        suspensions = hear(connection)
        if isinstance(suspensions, int):
            tally.add("by the library", suspensions)
        else:
            tally.add("errors", message=f"worker {number} said at its end: {suspensions}")
        process.join(LIMIT_S)
        if process.exitcode != 0:
            tally.add("errors", message=f"worker {number} has ended with exit code {process.exitcode}")
    return tally


def hear(connection: Any) -> Any:
    """What a worker says, or why it says nothing."""
    try:
        return connection.recv() if connection.poll(LIMIT_S) else f"nothing for {LIMIT_S} s"
    except (OSError, EOFError):
        return "it has ended"


def report(arguments: argparse.Namespace, tally: Tally) -> bool:
    counts = tally.counts
    for needed in ("from outside", "by the library", *(kind.name for kind in models.KINDS)):
        if counts[needed] == 0:
            tally.add("errors", message=f"none: {needed}. The soak shows nothing without it.")
    faults = ("errors", "wrong", "lost", "reordered")
    order = ("urgent", "batch", *faults, "from outside", "by the library")
    print(json.dumps({"start": arguments.start, "seed": arguments.seed, **{name: counts[name] for name in order}}))
    failed = sum(counts[name] for name in faults)
    print(f"{counts['urgent'] + counts['batch']} passed, {failed} failed", flush=True)
    return failed == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="two models and four workers under random suspension")
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork", help="how workers are started (fork)")
    parser.add_argument("--seconds", type=float, default=0, help="go on for so long (0)")
    parser.add_argument("--requests", type=int, default=50, help="and for so many requests of each model of each worker (50)")
    parser.add_argument("--seed", type=int, help="of everything that is random (a new one)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--fault", choices=models.FAULTS, help="make one fault, which must be found")
    arguments = parser.parse_args()
    code_object = os.environ.get("GIVEWAY_TEST_KERNELS")
    if code_object is None:
        sys.exit("GIVEWAY_TEST_KERNELS is not set: it names the code object of examples/kernels (scripts/test-python makes it)")
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().getrandbits(32)
    chaos = f"chaos:{arguments.seed}"
    if os.environ.get("XSCHED_TEST") != chaos:
        # The library reads its environment once.
        os.environ["XSCHED_TEST"] = chaos
        os.execv(sys.executable, [sys.executable, *sys.argv, "--seed", str(arguments.seed)])
    print(f"seed {arguments.seed}, {arguments.start}: {arguments.workers} workers", file=sys.stderr, flush=True)
    sys.exit(0 if report(arguments, soak(arguments, code_object)) else 1)


if __name__ == "__main__":
    main()
