#!/usr/bin/env python3
"""A serving program with worker processes, of which one is urgent.

usage: workers.py [--equal] [--start fork|spawn] [--kernels FILE] [--client auto|hip|pytorch]

Three batch workers get their work first. The urgent worker gets twice as much, and is done first all the same: each worker
has a priority of its own, and xserver suspends the batch workers while the urgent one has work.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import python_client

BATCH_WORKERS = 3
# Steps of 50 ms. The urgent worker has more work than each batch worker, so it is first only by its priority.
BATCH_STEPS, URGENT_STEPS = 20, 40
# A worker that takes longer for its next message counts as failed.
LIMIT_S = 300


def work(arguments: argparse.Namespace, role: str, priority: int, steps: int, begin: Any, messages: Any) -> None:
    """A worker process."""
    giveway = python_client.import_giveway()
    client = python_client.connect(arguments)
    stream = client.stream()
    # The part counts for all that this worker does, its idle times included: a batch worker whose process nothing outranks
    # launches all of its work at once, and what is launched cannot be kept back.
    with giveway.priority(priority, stream=stream):
        task = client.step(stream)
        # The code is on the device now.
        task.submit().wait()
        messages.put((role, "ready", (os.getpid(), client.label)))
        begin.wait()
        submitted = [task.submit() for _ in range(steps)]
        messages.put((role, "submitted", None))
        # Follows each step. If the server saw nothing of an urgent program complete for 100 ms, it would let others run.
        for completion in submitted:
            completion.wait()
        messages.put((role, "done", task.check()))


class Workers:
    """The worker processes, and what they say."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        # This process uses no GPU before it forks: HIP cannot be used in the child of a process that has used it.
        self._context: Any = multiprocessing.get_context(arguments.start)
        self._messages = self._context.Queue()
        self._processes: list[Any] = []

    def start(self, role: str, priority: int, steps: int) -> Any:
        """Returns the event that lets the worker begin."""
        begin = self._context.Event()
        call = (self._arguments, role, priority, steps, begin, self._messages)
        # A worker that this program leaves behind ends with it.
        process = self._context.Process(target=work, args=call, daemon=True)
        process.start()
        self._processes.append(process)
        return begin

    def next(self) -> tuple[str, str, Any]:
        """The next message: (role, what it says, value)."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if self._messages.empty():
                if any(process.exitcode for process in self._processes):
                    sys.exit("A worker has failed. Its message is above.")
                time.sleep(0.01)
            else:
                message: tuple[str, str, Any] = self._messages.get()
                return message
        sys.exit(f"The workers have said nothing for {LIMIT_S} s.")

    def join(self) -> None:
        for process in self._processes:
            process.join(LIMIT_S)
            if process.exitcode != 0:
                sys.exit(f"A worker has ended with exit code {process.exitcode}.")


def wait_for_server(expected: dict[int, int]) -> None:
    """Waits until the server knows a queue of each process, by its number, with its priority."""
    if shutil.which("xcli") is None:
        sys.exit("xcli is not in PATH: build giveway (`make build`), and add target/release to PATH.")
    # xcli calls no HIP, so it needs no library.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        listed = subprocess.run(["xcli", "list", "--json"], env=environment, stdout=subprocess.PIPE, check=True).stdout
        known = {(client["pid"], queue["priority"]) for client in json.loads(listed)["clients"] for queue in client["queues"]}
        if set(expected.items()) <= known:
            return
        time.sleep(0.05)
    sys.exit(f"The server has not seen the workers' queues for {LIMIT_S} s: see `xcli list`.")


def main() -> None:
    parser = argparse.ArgumentParser(description="worker processes, of which one is urgent")
    parser.add_argument("--equal", action="store_true", help="give all workers the same priority")
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork", help="how workers are started (fork)")
    python_client.add_arguments(parser)
    arguments = parser.parse_args()
    python_client.import_giveway()
    urgent, batch = (5, 5) if arguments.equal else (10, 1)

    workers = Workers(arguments)
    batch_begin = [workers.start("batch", batch, BATCH_STEPS) for _ in range(BATCH_WORKERS)]
    urgent_begin = workers.start("urgent", urgent, URGENT_STEPS)
    priorities, labels = {}, set()
    for _ in range(BATCH_WORKERS + 1):
        role, _, (pid, label) = workers.next()
        priorities[pid] = urgent if role == "urgent" else batch
        labels.add(label)
    print(*labels, f"workers: {BATCH_WORKERS} batch, 1 urgent, by {arguments.start}", sep="\n", flush=True)
    wait_for_server(priorities)

    for begin in batch_begin:
        begin.set()
    correct, submitted, done = True, 0, 0
    while done <= BATCH_WORKERS:
        role, said, value = workers.next()
        if said == "done":
            done += 1
            correct = correct and value
            print(f"{role}: a worker is done, its results are {'correct' if value else 'wrong'}", flush=True)
        elif role == "batch":
            submitted += 1
            if submitted == BATCH_WORKERS:
                print("batch: all workers have submitted their work\nurgent: the worker begins", flush=True)
                urgent_begin.set()
    workers.join()
    sys.exit(0 if correct else 1)


if __name__ == "__main__":
    main()
