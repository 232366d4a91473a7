"""Which policy decides: at the server, by `xcli`, or inside this process."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Optional

from . import _checks, _library, _programs
from ._types import POLICIES, ServerError, XResult, XSchedulerType

# The server answers at once. A process that waits longer waits for a stopped server.
_LIMIT_S = 30


def policy(
    name: Optional[str] = None, *, local: bool = False, device: Optional[int] = None, **parameters: float
) -> Optional[str]:
    """Returns the name of the policy in force at the server, or puts one in force and returns its name.

    name: as `xcli policy` lists them, such as "HPF".
    local: this process decides between its own queues from now on, without the server. Needs a name.
    device: only this device, by its number in `xcli list`.
    parameters: of the policy, such as `slack_ms=5` for EDF.

    Returns None without a server, and without the preloaded library.
    Raises ServerError if the server refuses, ValueError if there is no such policy or parameter.
    """
    name = _checks.optional_word(name)
    if name is not None:
        name = name.strip().upper()
        if name not in POLICIES:
            raise ValueError(f"there is no policy {name!r}; expected one of {', '.join(POLICIES)}")
    if device is not None:
        device = _checks.whole("device", device, 0, 2**64 - 1)
    if name is None and (local or parameters):
        raise ValueError("name a policy: `local` and parameters belong to one")
    if local and (parameters or device is not None):
        raise ValueError("a local policy has no parameters and is for all devices")
    library = _library.find()
    if library is None:
        return None
    if name is None:
        return _in_force(device)
    if local:
        library.check("XHintSetScheduler", int(XSchedulerType.kSchedulerLocal), int(POLICIES[name]))
        return name
    arguments = ["policy", "set", name]
    if device is not None:
        arguments += ["--device", str(device)]
    for parameter, value in parameters.items():
        arguments += [f"--{parameter.replace('_', '-')}", _number(parameter, value)]
    _xcli(arguments)
    return name


def _number(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number, not {type(value).__name__}")
    return repr(value)


def _in_force(device: Optional[int]) -> Optional[str]:
    listed = json.loads(_xcli(["policy", "list", "--json"]))
    names = {row.get("device"): str(row["policy"]) for row in listed["in_force"]}
    # A device without a policy of its own has that of all devices.
    return names.get(device, names.get(None))


def _xcli(arguments: list[str]) -> str:
    program = _programs.find("xcli")
    if program is None:
        code = XResult.kXSchedErrorNotSupported
        raise ServerError(code, "xcli is not installed: install giveway's wheel, or giveway itself (docs/install.md)")
    # xcli calls no HIP. The library would only take time to load.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [program, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        code = XResult.kXSchedErrorBadResponse
        raise ServerError(code, f"the server has not answered xcli for {_LIMIT_S} s") from None
    except OSError as error:
        raise ServerError(XResult.kXSchedErrorUnknown, f"cannot run {program}: {error.strerror}") from error
    if done.returncode == 2:
        raise ValueError(done.stderr.strip())
    if done.returncode != 0:
        raise ServerError(XResult.kXSchedErrorBadResponse, done.stderr.strip() or f"xcli: exit code {done.returncode}")
    return done.stdout
