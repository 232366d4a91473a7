"""The configuration of a Scheduler: a TOML or JSON file, or the defaults."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import Any, Optional, Union

from . import _checks
from ._types import PRIORITY_MAX

LATENCY_CRITICAL = "latency_critical"
BEST_EFFORT = "best_effort"
KINDS = (LATENCY_CRITICAL, BEST_EFFORT)

# How much more urgent latency-critical tasks are than the rest of the process, unless the configuration says otherwise.
_AHEAD = 10
_MOST_WORKERS = 1024


@dataclass(frozen=True)
class TaskClass:
    """How the tasks of a class are run."""

    name: str
    #: latency_critical or best_effort.
    kind: str
    priority: int
    slo_ms: Optional[float] = None


@dataclass(frozen=True)
class Configuration:
    workers: int = 2
    #: How many of the workers run latency-critical tasks only.
    reserved: int = 1
    classes: dict[str, TaskClass] = field(default_factory=dict)


def _own_priority() -> int:
    """The priority that `xcli run` has given to this process."""
    try:
        return _checks.priority(int(os.environ.get("XSCHED_AUTO_XQUEUE_PRIORITY") or 0))
    except ValueError:
        return 0


def defaults() -> Configuration:
    own = _own_priority()
    critical = TaskClass(LATENCY_CRITICAL, LATENCY_CRITICAL, min(own + _AHEAD, PRIORITY_MAX))
    return Configuration(classes={LATENCY_CRITICAL: critical, BEST_EFFORT: TaskClass(BEST_EFFORT, BEST_EFFORT, own)})


def load(path: Union[str, os.PathLike[str], None]) -> Configuration:
    """Reads a configuration. Raises OSError if it cannot be read, ValueError if it has a mistake."""
    if path is None:
        return defaults()
    path = os.fspath(path)
    with open(path, "rb") as file:
        content = file.read()
    try:
        return parse(_decode(path, content))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _decode(path: str, content: bytes) -> dict[str, Any]:
    text = content.decode("utf-8")
    if path.endswith(".json"):
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("expected an object")
        return value
    return dict(_toml().loads(text))


def _toml() -> Any:
    import importlib

    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ValueError("Python 3.9 and 3.10 read TOML with the package tomli: `pip install giveway[toml]`, or use a .json file")


def _known(where: str, table: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            raise ValueError(f"{where}{key} is unknown; expected {', '.join(keys)}")


def workers(count: Any, reserved: Any) -> tuple[int, int]:
    """Checks the number of workers, and how many are reserved. Without the latter one is, if there are two or more."""
    count = _checks.whole("workers", count, 1, _MOST_WORKERS)
    if reserved is None:
        return count, min(1, count - 1)
    return count, _checks.whole("reserved", reserved, 0, count - 1)


def parse(table: dict[str, Any]) -> Configuration:
    _known("", table, ("workers", "reserved", "classes"))
    base = defaults()
    count, reserved = workers(table.get("workers", base.workers), table.get("reserved"))
    given = table.get("classes", {})
    if not isinstance(given, dict):
        raise TypeError("classes is a table with a table for each class")
    classes = dict(base.classes)
    for name, row in given.items():
        if not isinstance(row, dict):
            raise TypeError(f"classes.{name} is a table")
        classes[name] = _task_class(name, row, base)
    return Configuration(count, reserved, classes)


def _task_class(name: str, row: dict[str, Any], base: Configuration) -> TaskClass:
    where = f"classes.{name}."
    _known(where, row, ("kind", "priority", "slo_ms"))
    kind = row.get("kind", name if name in KINDS else None)
    if kind not in KINDS or (name in KINDS and kind != name):
        raise ValueError(f"{where}kind is {kind!r}; expected {name if name in KINDS else ' or '.join(KINDS)}")
    result = replace(base.classes[kind], name=name)
    try:
        if "priority" in row:
            result = replace(result, priority=_checks.priority(row["priority"]))
        if "slo_ms" in row:
            _checks.milliseconds("slo_ms", row["slo_ms"])
            result = replace(result, slo_ms=float(row["slo_ms"]))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}{error}") from error
    return result
