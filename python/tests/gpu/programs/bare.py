"""What a program sees if the library is preloaded, and the environment makes no queues, or switches the library off."""

from __future__ import annotations

import json
import warnings

import hip

import giveway


def main() -> None:
    stream = hip.Stream()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = len(giveway.queues())
        with giveway.priority(10, stream=stream):
            inside = [giveway.stream(stream).priority]
            with giveway.priority(20):
                inside.append(giveway.stream().priority)
        queue = giveway.stream(stream)
        local = giveway.policy("FAIR", local=True)
        said = {
            "active": giveway.active(),
            "before": before,
            "inside": inside,
            "after": [queue.priority, giveway.stream().priority],
            "queues": len(giveway.queues()),
            "local": local,
            "warnings": [str(one.message) for one in caught],
            "here": all(one.filename == __file__ for one in caught),
        }
    print(json.dumps(said), flush=True)


main()
