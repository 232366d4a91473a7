"""`python -m giveway`, and the programs of the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import giveway
from giveway import _programs
from giveway.__main__ import split

PACKAGED = _programs.PREFIX.is_dir()


@pytest.mark.parametrize(
    ("words", "options", "script"),
    [
        ("a.py --priority 3", "", "a.py --priority 3"),
        ("--priority 10 a.py -x", "--priority 10", "a.py -x"),
        ("--priority -10 -u50 --strict a.py", "--priority -10 -u50 --strict", "a.py"),
        ("--gpu-sim --level=3 -t 500 a.py", "--gpu-sim --level=3 -t 500", "a.py"),
        ("--class best-effort -m pkg.mod --strict", "--class best-effort", "-m pkg.mod --strict"),
        ("--priority 10 -- -c print(1)", "--priority 10", "-c print(1)"),
        ("--strict", "--strict", ""),
        ("--priority", "--priority", ""),
        ("--help", "--help", ""),
    ],
)
def test_options_end_where_the_script_begins(words: str, options: str, script: str) -> None:
    assert split(words.split()) == (options.split(), script.split())


def module(*words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "giveway", *words]
    return subprocess.run(command, env={**os.environ, **changes}, capture_output=True, text=True, timeout=120)


def test_module_passes_commands_on_to_xcli() -> None:
    done = module("--version")
    assert done.stdout == f"xcli {giveway.__version__}\n"
    assert module("policy", "list", "--json").stdout.startswith("{")
    assert module("no-such-command").returncode == 2
    assert "--priority <N>" in module("run", "--help").stdout


def test_module_says_what_is_missing(tmp_path: Path) -> None:
    assert module().returncode == 2
    done = module("run", "--strict")
    assert (done.returncode, "no script" in done.stderr) == (2, True)
    if PACKAGED:
        pytest.skip("the wheel has the programs")
    done = module("doctor", PATH=str(tmp_path))
    assert (done.returncode, "xcli is not installed" in done.stderr) == (127, True)


def test_script_runs_with_the_library_and_this_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, giveway\n"
        "print(giveway.active(), sys.executable, sys.argv[1:], os.environ['XSCHED_AUTO_XQUEUE_PRIORITY'])\n"
        "sys.exit(7)\n"
    )
    done = module("run", "--policy", "HPF", "--priority", "12", str(script), "--priority", "1")
    assert (done.stdout, done.returncode) == (f"True {sys.executable} ['--priority', '1'] 12\n", 7), done.stderr


@pytest.mark.skipif(not PACKAGED, reason="the package was not installed from its wheel")
@pytest.mark.parametrize("name", ["xcli", "xserver", "gpu-sim"])
def test_wheel_installs_programs(name: str) -> None:
    path = Path(sysconfig.get_path("scripts")) / name
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{name} {giveway.__version__}\n"), done.stderr


@pytest.mark.skipif(not PACKAGED, reason="the package was not installed from its wheel")
def test_programs_of_the_wheel_go_before_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = _programs.find("xcli")
    assert found == str(_programs.PREFIX / "bin" / "xcli")
    assert (_programs.PREFIX / "lib" / "libshimhip.so").is_file()
    assert module("run", "--policy", "HPF", "-c", "import giveway; print(giveway.active())").stdout == "True\n"


def test_script_of_the_same_name_is_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "a-program"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _programs.find("a-program") is None
    script.write_bytes(b"\x7fELF")
    assert _programs.find("a-program") == str(script)
