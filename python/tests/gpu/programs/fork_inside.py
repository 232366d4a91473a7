"""Forks inside of a part: the child has neither the part nor the parent's queues, and the parent keeps both."""

from __future__ import annotations

import json
import os
import sys

import hip

import giveway


def main() -> None:
    stream = hip.Stream()
    queue = giveway.stream(stream)
    scheduler = giveway.Scheduler(workers=1)
    read, write = os.pipe()
    said: dict[str, object] = {}
    with giveway.priority(10, stream=stream):
        child = os.fork()
        if child == 0:
            try:
                queue.stats()
            except giveway.GivewayError as error:
                said["queue"] = error.code.name
            try:
                scheduler.submit(print)
            except RuntimeError as error:
                said["scheduler"] = str(error)
            scheduler.shutdown()
    if child == 0:
        os.write(write, json.dumps(said).encode())
        # Handlers of exit are the parent's.
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        said = json.load(file)
    _, status = os.waitpid(child, 0)
    said["exit code"] = os.waitstatus_to_exitcode(status)
    said["after"] = queue.priority
    with giveway.priority(20, stream=stream):
        said["again"] = queue.priority
    said["scheduled"] = scheduler.submit(lambda: 5).result(timeout=60)
    scheduler.shutdown()
    print(json.dumps(said), flush=True)
    sys.stdin.readline()


main()
