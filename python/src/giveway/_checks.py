"""Checks of arguments, which are made at once, also without the library."""

from __future__ import annotations

import math
import operator
from typing import Any, Optional

from ._types import INT64_MAX, PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NO_EXECUTE, XQueueClass


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Returns a whole number in a range. Raises TypeError or ValueError for anything else."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; expected {least} to {most}")
    return number


def priority(value: Any, *, may_stop: bool = False) -> int:
    """`may_stop` also accepts the priority of a queue that never runs."""
    if may_stop and type(value) is int and value == PRIORITY_NO_EXECUTE:
        return value
    return whole("priority", value, PRIORITY_MIN, PRIORITY_MAX)


def microseconds(name: str, value: Any) -> int:
    return whole(name, value, 0, INT64_MAX)


def milliseconds(name: str, value: Any) -> int:
    """Returns a positive time as microseconds, at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a number of milliseconds, not {type(value).__name__}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} is {number}; expected a positive number of milliseconds")
    return min(max(1, round(number * 1000)), INT64_MAX)


_CLASSES = {
    "none": XQueueClass.kQueueClassNone,
    "latency-critical": XQueueClass.kQueueClassLatencyCritical,
    "best-effort": XQueueClass.kQueueClassBestEffort,
}


def queue_class(value: Any) -> XQueueClass:
    """Accepts an XQueueClass, or its word with a hyphen or an underscore."""
    if isinstance(value, str):
        word = value.replace("_", "-")
        if word not in _CLASSES:
            raise ValueError(f"cls is {value!r}; expected {', '.join(_CLASSES)}")
        return _CLASSES[word]
    if isinstance(value, XQueueClass):
        return value
    raise TypeError(f"cls is a word or an XQueueClass, not {type(value).__name__}")


def optional_word(value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected a name, not {type(value).__name__}")
    return value
