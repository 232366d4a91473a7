"""The server of programs/soak.py for a few requests; `make soak-python` runs it for longer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from conftest import HERE, LIMIT_S

SEED = "20"
NONE = {"errors": 0, "wrong": 0, "lost": 0, "reordered": 0}


def soak(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Returns the exit code, the counts, and the last line."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    call = [sys.executable, str(HERE / "programs" / "soak.py"), "--seed", SEED, *arguments]
    done = subprocess.run(call, env=environment, stdout=subprocess.PIPE, text=True, timeout=5 * LIMIT_S)
    counts, last = done.stdout.splitlines()
    return done.returncode, json.loads(counts), last


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_two_models_and_four_workers_are_suspended_at_random(start: str) -> None:
    code, counts, last = soak("--start", start, "--requests", "20")
    answered = counts["urgent"] + counts["batch"]
    assert {name: counts[name] for name in NONE} == NONE
    assert answered >= 2 * 4 * 20
    assert counts["from outside"] >= 4
    assert counts["by the library"] > 0
    assert (code, last) == (0, f"{answered} passed, 0 failed")


@pytest.mark.parametrize("fault", ["lost", "reordered", "wrong", "error"])
def test_soak_finds_a_fault(fault: str) -> None:
    code, counts, last = soak("--fault", fault, "--workers", "1", "--requests", "20")
    found = {name: counts[name] for name in NONE}
    if fault == "error":
        # The request that failed, and those behind it, have no result.
        assert found.pop("lost") > 0
        assert found == {"errors": 1, "wrong": 0, "reordered": 0}
    else:
        # Two requests that are exchanged are each at the wrong place.
        assert found == {**NONE, fault: 2 if fault == "reordered" else 1}
    assert code == 1
    assert not last.endswith(" 0 failed")
