"""The programs of the package: xcli, xserver, gpu-sim. The wheel holds them; otherwise those of the system are used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

# As below any prefix: xcli finds the library in ../lib and the other programs beside itself.
PREFIX = Path(__file__).resolve().parent / "_prefix"


def find(name: str) -> Optional[str]:
    """Returns the path of a program; None if it is not installed."""
    packaged = PREFIX / "bin" / name
    if packaged.is_file():
        return str(packaged)
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)
        # An entry point of this package is a script, and would find itself.
        if os.access(path, os.X_OK) and _is_program(path):
            return path
    return None


def _is_program(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def become(name: str, arguments: Sequence[str]) -> int:
    """Becomes a program. Returns only if that fails, with an exit code as of a shell."""
    path = find(name)
    if path is None:
        message = f"{name} is not installed: install giveway's wheel, or giveway itself (docs/install.md)"
        print(f"giveway: {message}", file=sys.stderr)
        return 127
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(path, [name, *arguments])
    except OSError as error:
        print(f"giveway: cannot run {path}: {error.strerror}", file=sys.stderr)
        return 126


def xcli() -> int:
    return become("xcli", sys.argv[1:])


def xserver() -> int:
    return become("xserver", sys.argv[1:])


def gpu_sim() -> int:
    return become("gpu-sim", sys.argv[1:])
