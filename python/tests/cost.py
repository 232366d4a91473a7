"""Measures what hints cost: entering and leaving a part, best of many rounds. Judges nothing.

python -m giveway run python/tests/cost.py
"""

from __future__ import annotations

import sys
import timeit
from contextlib import AbstractContextManager
from typing import Any, Callable

import giveway

ROUNDS, CALLS = 200, 1000


def best_us(function: Callable[[], object]) -> float:
    return min(timeit.repeat(function, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def entering(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[], None]:
    def enter() -> None:
        with make():
            pass

    return enter


def main() -> None:
    active = giveway.active()
    print(f"Python {sys.version.split()[0]}; the library is {'preloaded' if active else 'not preloaded'}")
    scope, queue = giveway.priority(10), giveway.stream(0)
    of_queue = giveway.priority(10, stream=queue)
    rows: list[tuple[str, Callable[[], object]]] = [
        ("with giveway.priority(10): pass", entering(lambda: giveway.priority(10))),
        ("with scope: pass, one object", entering(lambda: scope)),
        ("with scope: pass, of a Queue", entering(lambda: of_queue)),
        ("giveway.hint_arrival(200)", lambda: giveway.hint_arrival(200)),
        ("queue.stats()", queue.stats),
        ("an empty function, for comparison", lambda: None),
    ]
    for name, function in rows:
        print(f"{best_us(function):8.2f} us  {name}")


main()
