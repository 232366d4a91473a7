"""Worker processes, each with a priority of its own. usage: workers.py fork|spawn|pool PRIORITY..."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import sys
from typing import Any

import giveway


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def work(priority: int, ready: Any, leave: Any) -> None:
    """A worker: one stream by the thread's defaults, and a part on the null stream."""
    import hip

    giveway.thread_defaults(priority=priority)
    stream = hip.Stream()
    memory = hip.Memory()
    queue = giveway.stream(stream)
    with giveway.priority(priority + 100):
        memory.fill(1, stream.cuda_stream)
        memory.fill(2, 0)
        ready.put((os.getpid(), priority, queue.priority, giveway.stream().priority))
        leave.wait()
    hip.synchronize()


def initialized(_: int) -> tuple[int, int]:
    """A task of a pool whose initializer has set the priority."""
    import hip

    stream = hip.Stream()
    try:
        return os.getpid(), giveway.stream(stream).priority
    finally:
        stream.destroy()


def pool(priority: int) -> None:
    context = multiprocessing.get_context("spawn")
    start = functools.partial(giveway.thread_defaults, priority=priority)
    with context.Pool(2, initializer=start) as workers:
        say([one[1] for one in workers.map(initialized, range(4))])


def main() -> None:
    method, *priorities = sys.argv[1:]
    if method == "pool":
        return pool(int(priorities[0]))
    context: Any = multiprocessing.get_context(method)
    ready, leave = context.Queue(), context.Event()
    # A part of the parent, which is not the children's. The parent must not have used the GPU before it forks.
    workers = [context.Process(target=work, args=(int(priority), ready, leave)) for priority in priorities]
    for worker in workers:
        worker.start()
    say([ready.get() for _ in workers])
    sys.stdin.readline()
    leave.set()
    for worker in workers:
        worker.join()
    say([worker.exitcode for worker in workers])
    return None


if __name__ == "__main__":
    main()
